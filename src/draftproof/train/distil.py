"""A small draft model for a target's own tokenizer: distilled from the target's laws on text the
target wrote (2310.08461).

It begins as some of the target's own layers, evenly spread from the first to the last and copied,
or as any checkpoint with the target's tokens. Its row t has read tokens up to t and guesses token t
+ 1, so, unlike a head's, its first draft is the answer's first token: rows from the prompt's last
one on are trained.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from draftproof.drafters.draft_model import DraftModel
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from draftproof.models.load import load_model
from draftproof.models.packed import unpack_linears
from draftproof.models.protocol import LanguageModel, Step
from draftproof.models.slices import skipping
from draftproof.models.vocabulary import check_same_tokens
from draftproof.train.check import Measured, acceptance_faults, measured_acceptance
from draftproof.train.head_costs import pass_costs_behind
from draftproof.train.heldout import Acceptance
from draftproof.train.loop import Look, Settings, Training, split, usable
from draftproof.train.losses import LOSSES
from draftproof.train.report import CARD, CHECKED_PROMPTS, card, facts_of
from draftproof.train.states import COLDEST, heats
from draftproof.train.store import Text
from draftproof.train.task import WARM_ENOUGH, Aim


@dataclass(frozen=True)
class DraftRecipe:
    """num_layers: of the target's layers it begins with. start: a checkpoint it begins as instead.
    length: draft length that is proposed and checked."""

    num_layers: int = 4
    start: str | None = None
    length: int = 4
    method: str = "draft_model"


def check_layers(target: Any, recipe: DraftRecipe) -> None:
    """UsageError for a number of layers the target does not have, where the draft begins with
    such."""
    total = target.num_layers
    if recipe.start is None and not 1 <= recipe.num_layers < total:
        raise UsageError(
            f"a draft of {recipe.num_layers} layers: {target.name} has {total}, so 1 to "
            f"{total - 1} can be taken"
        )


def fresh_draft(target: Any, recipe: DraftRecipe) -> HFModel:
    """The draft model to begin with, in float32, all its weights its own and free to change.

    UsageError: a number of layers the target does not have, or a checkpoint with other tokens than
    the target's."""
    if recipe.start is not None:
        model = load_model(
            recipe.start, dtype="float32", device=str(target.device), pack_weights=False
        )
        check_same_tokens(target.tokenizer, model.tokenizer, target.vocab_size, model.vocab_size)
        module = model.module
    else:
        check_layers(target, recipe)
        total = target.num_layers
        kept = {
            round(place * (total - 1) / max(recipe.num_layers - 1, 1))
            for place in range(recipe.num_layers)
        }
        sliced = skipping(target, [layer for layer in range(total) if layer not in kept]).module
        module = unpack_linears(copy.deepcopy(sliced)).float()
    module.requires_grad_(True)
    return HFModel(
        module,
        target.tokenizer,
        name=f"draft for {target.name}",
        max_length=target.max_length,
        check=False,
    )


class DraftTask:
    """A draft model against its target's laws, over the whole vocabulary."""

    positions: int | None = None

    def __init__(self, target: LanguageModel, draft: HFModel) -> None:
        self.target, self.draft, self.module = target, draft, draft.module

    def loss(self, texts: Sequence[Text], aim: Aim) -> Tensor:
        loss_of, rows = LOSSES[aim.loss], []
        for text, heat, logits in zip(
            texts, heats(texts, aim.temperature), self._target_logits(texts), strict=True
        ):
            scores = self._logits(text) / max(heat, WARM_ENOUGH)
            rows.append(loss_of(scores, (logits / max(heat, COLDEST)).log_softmax(-1)))
        return torch.cat(rows).mean()

    def acceptance(self, texts: Sequence[Text], steps: int, batch_size: int) -> Acceptance:
        found: list[tuple[Tensor, Tensor]] = []
        for first in range(0, len(texts), batch_size):
            batch = texts[first : first + batch_size]
            for text, heat, logits in zip(
                batch, heats(batch, None), self._target_logits(batch), strict=True
            ):
                found += self._coins(text, max(heat, COLDEST), logits, steps)
        if not found:
            return Acceptance((0.0,) * steps, (0.0,) * steps, (0.0,) * steps, (0,) * steps)
        marginal = torch.cat([part for part, _ in found], dim=1)
        overlap = torch.cat([part for _, part in found], dim=1)
        return Acceptance.of(marginal.mean(1).tolist(), overlap.mean(1).tolist(), marginal.shape[1])

    def _coins(
        self, text: Text, heat: float, logits: Tensor, steps: int
    ) -> list[tuple[Tensor, Tensor]]:
        """[(chance that all positions up to this one are accepted, overlap there)], each [steps,
        drafts], of one text."""
        target, draft = ((each / heat).softmax(-1) for each in (logits, self._logits(text)))
        labels = torch.tensor(text.tokens[text.prompt :], device=target.device)[:, None]
        p, q = target.gather(-1, labels)[:, 0], draft.gather(-1, labels)[:, 0]
        ratio = torch.where(
            p > 0, (q / p.clamp_min(1e-30)).clamp_max(1.0), torch.zeros_like(p)
        ).double()
        overlap = torch.minimum(target, draft).sum(-1).double()
        drafts = text.answer - steps + 1
        if drafts < 1:
            return []
        reached, rows = torch.ones(drafts, dtype=torch.float64, device=p.device), []
        for place in range(steps):
            rows.append(
                (reached * overlap[place : place + drafts], overlap[place : place + drafts])
            )
            reached = reached * ratio[place : place + drafts]
        return [(torch.stack([row for row, _ in rows]), torch.stack([row for _, row in rows]))]

    def _logits(self, text: Text) -> Tensor:
        """Of the draft after the positions prompt - 1 .. length - 2 [answer, vocab]."""
        ids = torch.tensor([text.tokens[:-1]], device=self.draft.device)
        found: Tensor = self.module(input_ids=ids, use_cache=False).logits[
            0, text.prompt - 1 :, : self.target.vocab_size
        ]
        return found.float()

    def _target_logits(self, texts: Sequence[Text]) -> list[Tensor]:
        steps = [
            Step(
                self.target.open(),
                t.tokens[:-1],
                rows=tuple(range(t.prompt - 1, len(t.tokens) - 1)),
            )
            for t in texts
        ]
        try:
            return [torch.as_tensor(out.logits).float() for out in self.target.extend_many(steps)]
        finally:
            for step in steps:
                step.session.close()


@dataclass(frozen=True)
class Distilled:
    """draft: as it was read back from its folder; the rest as for heads."""

    draft: LanguageModel
    foretold: tuple[float, ...]
    measured: Measured
    faults: tuple[str, ...]


def train_draft(
    target: Any,
    texts: Sequence[Text],
    recipe: DraftRecipe,
    settings: Settings,
    folder: Path,
    *,
    tell: Callable[[Look], None] = lambda look: None,
    warn: Callable[[str], None] = lambda sentence: None,
    about_texts: Mapping[str, Any] | None = None,
) -> Distilled:
    """Distil, write a folder that `draft_model` loads (bfloat16 weights, tokenizer), read it back
    and check it."""
    train, held = split(texts)
    usable(train, held)
    draft = fresh_draft(target, recipe)
    text = max(held or train, key=lambda text: len(text.tokens))
    costs = pass_costs_behind(target, text, settings.unroll, draft).table
    training = Training(DraftTask(target, draft), train, held, settings, folder, costs, tell, warn)
    training.run()
    foretold = training.evaluate()
    draft.module.to(torch.bfloat16).save_pretrained(folder)
    target.tokenizer.save_pretrained(folder)
    loaded = load_model(str(folder), dtype="float32", device=str(target.device))
    chosen = training.held_out[:CHECKED_PROMPTS]
    longest = min(max(text.answer for text in chosen), 128)
    measured = measured_acceptance(target, DraftModel(loaded), chosen, recipe.length, longest)
    facts = facts_of(target, recipe, training, (train, held), foretold, costs, about_texts)
    faults = acceptance_faults(measured, foretold.marginal)
    (folder / "draftproof.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (folder / CARD).write_text(
        card("draft_model", target.name, facts, foretold.marginal, measured, faults),
        encoding="utf-8",
    )
    return Distilled(loaded, foretold.marginal, measured, faults)
