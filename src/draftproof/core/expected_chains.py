"""Expected tokens of one round over a chain, written without the rules' code: what the enumerated
round must reproduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftproof.core.records import Array

Plan = Callable[[tuple[int, ...], tuple[int, ...]], "Array | int | None"]
"""(context, drafted path) -> what comes under it: a law to draw from, a token to guess, or None to
stop."""

Vector = NDArray[np.float64]
LawOf = Callable[[tuple[int, ...], tuple[int, ...]], Vector]
"""(context, drafted path) -> the target's law [vocab] after both."""


@dataclass(frozen=True)
class Place:
    """One token a chain may hold, when all that stands before it is given.

    depth: drafted tokens before it. p, q: what target and draft law give it. kept: the weight with
    which all before it are kept. drawn: the chance that it and all before it are drafted. joint:
    the product of p/q down to it, capped at 1 at every step."""

    depth: int
    p: float
    q: float
    kept: float
    drawn: float
    joint: float


Weight = Callable[[Place], float]
"""With what probability a token is drafted, reached and kept."""


def by_match(at: Place) -> float:
    """The target draws the drafted token."""
    return at.kept * at.q * at.p


def by_token(at: Place) -> float:
    """What target and draft law have in common (2211.17192)."""
    return at.kept * min(at.q, at.p)


def by_block(at: Place) -> float:
    """The draft's probability times the capped joint ratio (2403.10444, theorem 1)."""
    return at.drawn * at.joint


def expected_on_chain(
    weight: Weight,
    target_law: LawOf,
    plan: Plan,
    context: tuple[int, ...],
    depth: int,
    ends: frozenset[int],
) -> float:
    """Expected emitted tokens of the round after `context` with drafts at most `depth` long, 1 for
    the token that ends it.

    plan: the draft law after a path, a token where it guesses (a one-hot law), None where it stops.
    Nothing is emitted after a token of `ends`."""

    def below(path: tuple[int, ...], drawn: float, kept: float, joint: float) -> float:
        """Sum of the weights of all paths under `path`."""
        choice = plan(context, path) if len(path) < depth else None
        if choice is None:
            return 0.0
        p = target_law(context, path)
        q = np.eye(len(p))[choice] if isinstance(choice, int) else np.asarray(choice)
        total = 0.0
        for token in np.flatnonzero(q):
            chance, ratio = drawn * q[token], min(1.0, joint * p[token] / q[token])
            share = weight(Place(len(path), p[token], q[token], kept, chance, ratio))
            if share > 0 and int(token) not in ends:
                total += share + below((*path, int(token)), chance, share, ratio)
        return total

    return 1.0 + below((), 1.0, 1.0, 1.0)


def every_path(
    paths: Sequence[tuple[int, ...]],
    target_law: LawOf,
    context: tuple[int, ...],
    ends: frozenset[int],
) -> float:
    """The same over fixed guesses, given as all their paths, for a rule that takes candidates one
    after another: each path is kept with its own probability."""
    kept = [path for path in paths if not ends.intersection(path)]
    return 1.0 + sum(
        float(np.prod([target_law(context, path[:i])[token] for i, token in enumerate(path)]))
        for path in kept
    )
