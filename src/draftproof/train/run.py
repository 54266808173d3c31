"""A training from texts to a folder that can be used: fresh head, loop, checks, card. What the command line calls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from draftproof.bench.provenance import provenance
from draftproof.errors import UsageError
from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.folder import load_head, save_head
from draftproof.heads.medusa import Medusa
from draftproof.heads.target import TargetView, target_view
from draftproof.models.protocol import LanguageModel
from draftproof.train.check import LARGEST_DIFFERENCE, Measured, largest_difference, measured_acceptance
from draftproof.train.loop import Look, Settings, Training, frequent_ids, split
from draftproof.train.store import Text
from draftproof.train.unroll import Head

CHECKED_PROMPTS = 16
CARD = "card.md"


@dataclass(frozen=True)
class Recipe:
    """What is trained. method: "medusa", "eagle" or "eagle3". draft_vocab_size: of eagle3. num_heads, num_layers: of medusa.
    intermediate_size: of EAGLE's layer, None for the target's own. length: draft length that is proposed and checked."""

    method: str
    draft_vocab_size: int = 4096
    num_heads: int = 4
    num_layers: int = 1
    intermediate_size: int | None = None
    length: int = 4


@dataclass(frozen=True)
class Trained:
    """head: as it was read back from its folder. foretold: on held-out texts. measured: by generation on their prompts.
    difference: of hidden states between the two. faults: what the checks found, in sentences; none is well."""

    head: Head
    foretold: tuple[float, ...]
    measured: Measured
    difference: float
    faults: tuple[str, ...]


def fresh_head(recipe: Recipe, view: TargetView, texts: Sequence[Text], seed: int) -> Head:
    """An untrained head for `view`, in float32, its weights from `seed`; eagle3's draft vocabulary from the texts' answers."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        if recipe.method == "medusa":
            return Medusa.of(view, num_heads=recipe.num_heads, num_layers=recipe.num_layers)
        changes = {} if recipe.intermediate_size is None else {"intermediate_size": recipe.intermediate_size}
        if recipe.method == "eagle":
            return Eagle.of(view, **changes)
        if recipe.method == "eagle3":
            return Eagle3.of(view, frequent_ids(texts, recipe.draft_vocab_size, view.vocab_size), **changes)
    finally:
        torch.set_rng_state(state)
    raise UsageError(f"there is no head {recipe.method!r}; allowed: eagle, eagle3, medusa")


def train_head(
    target: LanguageModel,
    texts: Sequence[Text],
    recipe: Recipe,
    settings: Settings,
    folder: Path,
    *,
    tell: Callable[[Look], None] = lambda look: None,
    warn: Callable[[str], None] = lambda sentence: None,
    about_texts: Mapping[str, Any] | None = None,
) -> Trained:
    """Train, write the folder (bfloat16 weights), read it back and check it. Goes on from the folder's checkpoint."""
    view = target_view(target)
    train, held = split(texts)
    head = fresh_head(recipe, view, train, settings.seed)
    training = Training(target, head, train, held, settings, folder, tell, warn)
    training.run()
    foretold = training.evaluate()
    facts = {
        "recipe": asdict(recipe),
        "settings": asdict(settings),
        "texts": {"train": _counts(train), "held_out": _counts(held), **dict(about_texts or {})},
        "steps": len(training.losses),
        "stopped_early": training.stopped_early,
        "held_out_acceptance": asdict(foretold),
        "provenance": provenance(target, seed=settings.seed),
    }
    save_head(folder, head.to(torch.bfloat16), view, length=recipe.length, card=facts)
    loaded = load_head(folder, view, recipe.method)
    checked = _checked(target, loaded, training.held_out, foretold.marginal, recipe.length)
    (folder / CARD).write_text(card(recipe.method, view.name, facts, checked), encoding="utf-8")
    return checked


def _checked(target: LanguageModel, head: Head, held: Sequence[Text], foretold: Sequence[float], length: int) -> Trained:
    chosen = held[:CHECKED_PROMPTS]
    longest = max(text.answer for text in chosen)
    measured = measured_acceptance(target, head, chosen, length, min(longest, 128))
    difference = largest_difference(target, chosen[0], head.hidden_layers)
    faults = []
    for place in measured.departs_from(foretold):
        found, expected = measured.marginal[place - 1], foretold[place - 1]
        faults.append(f"position {place}: generation accepted {found:.3f}, held-out texts foretold {expected:.3f}")
    if difference > LARGEST_DIFFERENCE and str(getattr(target, "dtype", "")) == "torch.float32":
        faults.append(f"hidden states of training and generation differ by {difference:.1e} of their size")
    return Trained(head, tuple(foretold), measured, difference, tuple(faults))


def _counts(texts: Sequence[Text]) -> dict[str, Any]:
    return {
        "texts": len(texts),
        "answer_tokens": sum(text.answer for text in texts),
        "sources": dict(Counter(text.source for text in texts)),
    }


def card(method: str, target: str, facts: Mapping[str, Any], checked: Trained) -> str:
    """The card of a head, a page of Markdown: what it is for, what it learned from, how its drafts are accepted."""
    train, held = facts["texts"]["train"], facts["texts"]["held_out"]
    rows = [
        f"| {place} | {expected:.3f} | {found} |"
        for place, expected, found in zip(
            range(1, len(checked.foretold) + 1),
            checked.foretold,
            [f"{value:.3f}" for value in checked.measured.marginal] + ["-"] * len(checked.foretold),
            strict=False,
        )
    ]
    lines = [
        f"# {method} head for {target}",
        "",
        f"Trained for {facts['steps']} steps on {train['answer_tokens']} answer tokens of {train['texts']} texts "
        f"({', '.join(f'{count} {source}' for source, count in train['sources'].items())}); "
        f"{held['answer_tokens']} tokens of {held['texts']} texts were held out, by prompt.",
        "",
        f"Chance that a draft is accepted up to a position, foretold on the held-out texts at their own temperatures, and "
        f"measured by {checked.measured.drafts} drafts of a generation from {CHECKED_PROMPTS} of their prompts at most:",
        "",
        "| position | held out | generated |",
        "|---|---|---|",
        *rows,
        "",
        "Checks: " + ("; ".join(checked.faults) if checked.faults else "passed") + ".",
        "",
        "```json",
        json.dumps({"recipe": facts["recipe"], "settings": facts["settings"], "provenance": facts["provenance"]}, indent=1),
        "```",
        "",
    ]
    return "\n".join(lines)
