"""A training from texts to a folder that can be used: fresh head, loop, checks, card. What the
command line calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from draftproof.errors import UsageError
from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.folder import load_head, save_head
from draftproof.heads.medusa import Medusa
from draftproof.heads.target import TargetView, target_view
from draftproof.models.protocol import LanguageModel
from draftproof.train.beginning import begin_as_last_layer, fits_last_layer
from draftproof.train.cache import StateCache
from draftproof.train.check import (
    LARGEST_DIFFERENCE,
    Measured,
    acceptance_faults,
    drafter_of,
    largest_difference,
    measured_acceptance,
)
from draftproof.train.head_costs import time_head
from draftproof.train.loop import Look, Settings, Training, frequent_ids, split, usable
from draftproof.train.report import CARD, CHECKED_PROMPTS, card, facts_of
from draftproof.train.store import Text
from draftproof.train.task import HeadTask
from draftproof.train.unroll import Head


@dataclass(frozen=True)
class Recipe:
    """What is trained. method: "medusa", "eagle" or "eagle3". draft_vocab_size (None: 4,096, or as
    many as the head at `start` has), hidden_layers (those that are fused; None: the published
    choice): of eagle3. num_heads, num_layers: of medusa. intermediate_size: of EAGLE's layer, None
    for the target's own. length: draft length that is proposed and checked. start: a folder of a
    head whose weights it begins with.
    begin: of an untrained eagle3 head, "random" or as the target's last layer, "target"; "auto":
    the latter where it fits."""

    method: str
    draft_vocab_size: int | None = None
    num_heads: int = 4
    num_layers: int = 1
    intermediate_size: int | None = None
    length: int = 4
    hidden_layers: tuple[int, ...] | None = None
    start: str | None = None
    begin: str = "random"

    def __post_init__(self) -> None:
        if self.begin not in ("auto", "random", "target"):
            raise UsageError(
                f"begin is {self.begin!r}; allowed: random, target (as its last layer), "
                "auto (the latter if it fits)"
            )


@dataclass(frozen=True)
class Cache:
    """Hidden states kept on disk. limit: bytes the folder may hold. tell: told sentences and how
    far it is."""

    folder: Path
    limit: int
    say: Callable[[str], None] = lambda sentence: None
    tell: Callable[[int, int], None] = lambda done, total: None


@dataclass(frozen=True)
class Trained:
    """head: as it was read back from its folder. foretold: on held-out texts. measured: by
    generation on their prompts. difference: of hidden states between the two. faults: what the
    checks found, in sentences; none is well."""

    head: Head
    foretold: tuple[float, ...]
    measured: Measured
    difference: float
    faults: tuple[str, ...]


def fresh_head(
    recipe: Recipe, view: TargetView, texts: Sequence[Text], seed: int, module: Any = None
) -> Head:
    """A head for `view` to begin with, in float32: the one at `recipe.start`, or an untrained one
    whose weights are from `seed` and whose draft vocabulary (eagle3) is from the texts' answers.
    module: the target's, for a beginning as its last layer."""
    if recipe.start is not None:
        begun = load_head(recipe.start, view, recipe.method)
        if isinstance(begun, Eagle3) and recipe.draft_vocab_size is not None:
            begun = begun.widened(_more_ids(begun, recipe.draft_vocab_size, texts))
        return begun.float().requires_grad_(True)
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        if recipe.method == "medusa":
            return Medusa.of(view, num_heads=recipe.num_heads, num_layers=recipe.num_layers)
        changes = (
            {}
            if recipe.intermediate_size is None
            else {"intermediate_size": recipe.intermediate_size}
        )
        if recipe.method == "eagle":
            return Eagle.of(view, **changes)
        if recipe.method == "eagle3":
            ids = frequent_ids(texts, recipe.draft_vocab_size or 4096, view.vocab_size)
            _check_layers(recipe.hidden_layers or (), view)
            made = Eagle3.of(view, ids, hidden_layers=recipe.hidden_layers, **changes)
            if recipe.begin == "target" or (
                recipe.begin == "auto" and fits_last_layer(made, module)
            ):
                begin_as_last_layer(made, module)
            return made
    finally:
        torch.set_rng_state(state)
    raise UsageError(f"there is no head {recipe.method!r}; allowed: eagle, eagle3, medusa")


def check_recipe(recipe: Recipe, target: LanguageModel) -> None:
    """UsageError for what `fresh_head` would refuse whatever the texts are: to be called before any
    are written."""
    view = target_view(target)
    if recipe.start is not None:
        load_head(recipe.start, view, recipe.method)
    _check_layers(recipe.hidden_layers or (), view)


def _more_ids(head: Eagle3, size: int, texts: Sequence[Text]) -> list[int]:
    """The head's draft vocabulary and what else the answers use most, `size` ids in all. UsageError
    for fewer than it has."""
    known = head.draft_ids.tolist()
    if size < len(known):
        raise UsageError(
            f"draft_vocab_size is {size}; the head that training begins with has "
            f"{len(known)}, and keeps them"
        )
    return frequent_ids(texts, size, head.vocab_size, known=known)


def _check_layers(layers: Sequence[int], view: TargetView) -> None:
    if wrong := [layer for layer in layers if not 0 <= layer <= view.num_layers]:
        raise UsageError(
            f"hidden states {wrong} are asked for; {view.name} has 0 (the embeddings) to "
            f"{view.num_layers}"
        )


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
    cache: Cache | None = None,
) -> Trained:
    """Train, write the folder (bfloat16 weights), read it back and check it. Goes on from the
    folder's checkpoint.

    cache: where hidden states are kept between epochs and runs; None: they are made for every batch
    and never written."""
    view = target_view(target)
    train, held = split(texts)
    usable(train, held)
    head = fresh_head(recipe, view, train, settings.seed, target.module)
    if isinstance(head, Eagle3):
        recipe = replace(recipe, draft_vocab_size=len(head.draft_ids))
    states = None if cache is None else _filled(cache, target, view, head, [*train, *held])
    costs = time_head(
        target, head, max(held or train, key=lambda text: len(text.tokens)), settings.unroll
    )
    training = Training(
        HeadTask(target, head, states), train, held, settings, folder, costs, tell, warn
    )
    training.run()
    foretold = training.evaluate()
    facts = facts_of(target, recipe, training, (train, held), foretold, costs, about_texts)
    save_head(folder, head.to(torch.bfloat16), view, length=recipe.length, card=facts)
    loaded = load_head(folder, view, recipe.method)
    checked = _checked(target, loaded, training.held_out, foretold.marginal, recipe.length)
    page = card(
        f"{recipe.method} head",
        view.name,
        facts,
        checked.foretold,
        checked.measured,
        checked.faults,
    )
    (folder / CARD).write_text(page, encoding="utf-8")
    return checked


def _filled(
    cache: Cache, target: LanguageModel, view: TargetView, head: Head, texts: Sequence[Text]
) -> StateCache:
    """The states of `texts` on disk, their size said before the first is written."""
    ids = head.draft_ids if isinstance(head, Eagle3) else None
    states = StateCache(cache.folder, target, view, head.hidden_layers, ids)
    texts = [text for text in texts if text.answer >= 2]
    missing = states.missing(texts)
    cache.say(
        f"hidden states of {len(texts)} texts take {states.size(texts) / 1e9:.2f} GB in "
        f"{cache.folder}, "
        f"{states.size(missing) / 1e9:.2f} GB of it still to be written; the limit is "
        f"{cache.limit / 1e9:.2f} GB"
    )
    states.fill(texts, cache.limit, cache.tell)
    return states


def _checked(
    target: LanguageModel, head: Head, held: Sequence[Text], foretold: Sequence[float], length: int
) -> Trained:
    chosen = held[:CHECKED_PROMPTS]
    longest = max(text.answer for text in chosen)
    length = min(length, len(foretold))  # of positions that were not trained nothing was foretold
    measured = measured_acceptance(target, drafter_of(head), chosen, length, min(longest, 128))
    difference = largest_difference(target, chosen[0], head.hidden_layers)
    faults = [*acceptance_faults(measured, foretold)]
    if difference > LARGEST_DIFFERENCE and str(target.dtype) == "torch.float32":
        faults.append(
            f"hidden states of training and generation differ by {difference:.1e} of their size"
        )
    return Trained(head, tuple(foretold), measured, difference, tuple(faults))
