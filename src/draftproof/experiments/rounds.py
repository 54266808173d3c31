"""One round of speculative sampling and the ways people get it wrong, each wrong one a single
change to the right one.

Written plainly for reading, one position after another; the library's own rule
(core/rules/token.py) is vectorised. Chance is an argument, so that a round can be drawn or have its
outcomes summed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from draftproof.core.chance import Chance, Purpose
from draftproof.core.records import Array

LawFunction = Callable[[tuple[int, ...]], Array]
RoundFunction = Callable[[LawFunction, LawFunction, tuple[int, ...], int, Chance], list[int]]
"""(target, drafter, prefix, number of drafts, chance) -> the tokens emitted."""


def ratio(target: Array, draft: Array, token: int) -> float:
    """min(1, target/draft): accept exactly as often as exactness allows."""
    return float(min(1.0, target[token] / draft[token]))


def residual(target: Array, draft: Array) -> Array:
    """What the target has above the drafter, unnormalised: the law of a replacement."""
    return np.maximum(target - draft, 0.0)


def one_hot(law: Array) -> Array:
    """All mass on the most likely token."""
    return np.eye(len(law))[int(law.argmax())]


def play_round(
    target_fn: LawFunction,
    draft_fn: LawFunction,
    prefix: tuple[int, ...],
    k: int,
    chance: Chance,
    *,
    accept: Callable[[Array, Array, int], float] = ratio,
    replace: Callable[[Array, Array], Array] = residual,
    ratio_law: Callable[[Array], Array] = lambda law: law,
    draft_draw: Callable[[Array], Array] = lambda law: law,
    stop_at_rejection: bool = True,
    bonus: bool = True,
    shift: int = 0,
) -> list[int]:
    """The right round with the defaults. accept, replace: chance and law at a position. draft_draw:
    the law drafts are drawn from; ratio_law: the law put into accept and replace; both from the
    drafter's. shift: the target law is taken so many drafts too late."""
    drafts: tuple[int, ...] = ()
    laws = []
    for i in range(k):
        law = draft_fn(prefix + drafts)
        laws.append(ratio_law(law))
        drafts += (int(chance.draw(draft_draw(law), Purpose.DRAFT, i)),)
    emitted: list[int] = []
    for i, token in enumerate(drafts):
        target = target_fn(prefix + drafts[: i + shift])
        if chance.bernoulli(accept(target, laws[i], token), Purpose.ACCEPT, i):
            emitted.append(token)
            continue
        left = replace(target, laws[i])
        emitted.append(int(chance.draw(left if left.sum() > 0 else target, Purpose.REPLACEMENT, i)))
        if stop_at_rejection:
            return emitted
    if bonus:
        emitted.append(
            int(
                chance.draw(
                    replace(target_fn(prefix + drafts), np.zeros_like(laws[0])),
                    Purpose.REPLACEMENT,
                    k,
                )
            )
        )
    return emitted


def accept_inverted(target: Array, draft: Array, token: int) -> float:
    """The ratio upside down."""
    return min(1.0, draft[token] / target[token]) if target[token] > 0 else 1.0


def accept_argmax(target: Array, draft: Array, token: int) -> float:
    """The exact test for greedy decoding, used while sampling."""
    return float(token == int(target.argmax()))


def accept_all(target: Array, draft: Array, token: int) -> float:
    """No verification."""
    return 1.0


def replace_from_target(target: Array, draft: Array) -> Array:
    """Forgets that what the drafter offers too often is already over-represented."""
    return target


def replace_by_argmax(target: Array, draft: Array) -> Array:
    """What a greedy program emits."""
    return one_hot(target)


def wrong(**changes: Any) -> RoundFunction:
    """The right round with these changes."""
    return partial(play_round, **changes)


ROUNDS: dict[str, RoundFunction] = {
    "correct": play_round,
    "no bonus token": wrong(bonus=False),
    "resample from the target, not the residual": wrong(replace=replace_from_target),
    "keep verifying after a rejection": wrong(stop_at_rejection=False),
    "ratio inverted": wrong(accept=accept_inverted),
    "argmax check while sampling": wrong(accept=accept_argmax, replace=replace_by_argmax),
    "no verification": wrong(accept=accept_all, bonus=False),
    "target off by one position": wrong(shift=1),
}
"""What was done -> the round that does it."""
