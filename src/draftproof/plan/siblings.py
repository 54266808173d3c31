"""How likely each of several siblings was the accepted one and is the text's own token, rule by
rule, from both laws.

P is the target's law, Q the draft's, x the text's token; every figure is a mass over P(x), so it is
a chance given the text.

rrs, traversal  i.i.d.: min(P_b, Q)(x) times the chance that the b - 1 siblings before were
                rejected, P_b what they leave of P;
                without replacement: the same with Q_b, Q less the siblings before, in the mean over
                those
k_seq           min(Q, P/rho)(x) (1 - beta)^(b-1); rho and beta depend on how many siblings there
                are
greedy_k        certain where x is one of the k - 1 constants, else min(1, Q'(x)/P(x)) in the last
                place
match           the chance that x is the b-th draw and no earlier one; the target's own draw is
                independent
gumbel          the draft draws by the noise that made x the target's choice. Given that choice and
                the winning time m, token y
                is drafted before x with chance 1 - exp(-c_y m), c_y = (Q(y) P(x)/Q(x) - P(y))_+,
                and m is exponential: a race, in which x comes b-th as often as it is the b-th draw
                without replacement from weights 1 for x and c_y for y. In the first place: 1/(1 +
                sum c), as in 2408.07978

`traversal` accepts at least what `rrs` does; its siblings are foretold as those. Sums over siblings
before are exact for two siblings; for more, the earliest are gone through where few are possible
(under top-k or top-p), else PLAYED are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.core.records import Selection
from draftproof.core.rules import foretold
from draftproof.core.rules.k_seq import division_factor
from draftproof.core.siblings import without

Floats = NDArray[np.float64]
PLAYED = 4
"""Draws of an earlier sibling over which the chances of later ones are averaged, where not all are
gone through."""
MOST = 32
"""Ways for siblings to come about that are gone through at one position."""


def depends_on_count(rule: str, selection: Selection) -> bool:
    """Whether the chance of a sibling depends on how many its parent has, not on its place
    alone."""
    return foretold(rule).tree == "divided" or selection == "top_k_plus_one"


def sibling_chances(
    rule: str,
    selection: Selection,
    target_law: Any,
    draft_law: Any,
    token: int,
    count: int,
    seed: int = 0,
) -> Floats:
    """Chances [count] that the sibling in each place is the accepted one, given that the text goes
    on with `token`.

    rule: one that verifies sampled trees of this selection. Laws [vocab] that sum to 1. seed: of
    siblings that are drawn."""
    found, way = np.zeros(count), foretold(rule).tree
    kept = np.flatnonzero((np.asarray(target_law) > 0) | (np.asarray(draft_law) > 0))
    p, q = (np.asarray(law)[kept].astype(np.float64) for law in (target_law, draft_law))
    x = int(np.searchsorted(kept, token))
    if x == len(kept) or kept[x] != token or p[x] == 0:
        return found
    if selection == "top_k_plus_one":
        _constants_and_one(way, p, q, x, found)
    elif way == "noise":
        weights = coupled_weights(p, q, x)
        # by one noise, independent draws are one token
        few = count if selection == "without_replacement" else 1
        found[:few] = _in_turn(None, weights, x, few, seed)
    elif selection == "without_replacement":
        found[:] = (
            _in_turn(None, q, x, count, seed)
            if way == "draw"
            else _in_turn(p, q, x, count, seed) / p[x]
        )
    elif way == "draw":
        found[:] = q[x] * (1 - q[x]) ** np.arange(count)
    elif way == "divided":
        common = np.minimum(q, p / division_factor(p, q, count))
        found[:] = (1 - min(1.0, float(common.sum()))) ** np.arange(count) * common[x] / p[x]
    else:
        found[:] = _independent(p, q, x, count)
    return np.clip(found, 0.0, 1.0)


def coupled_weights(p: Floats, q: Floats, x: int) -> Floats:
    """The law [vocab] of which the draft's choices, given that the target's choice is x, are draws
    without replacement."""
    if q[x] == 0:
        return np.zeros(len(q))
    weights = np.maximum(q * (p[x] / q[x]) - p, 0.0)
    weights[x] = 1.0
    return np.asarray(weights / weights.sum())


def likeliest(law: Any, count: int) -> list[int]:
    """The `count` likeliest tokens of `law` [vocab] that have mass, as a draft takes them: the
    lowest id among equals."""
    if count <= 0:
        return []
    least = -np.partition(-law, count - 1)[count - 1] if count < len(law) else 0.0
    candidates = np.flatnonzero((law >= least) & (law > 0))
    return [int(token) for token in candidates[np.argsort(-law[candidates], kind="stable")][:count]]


def _constants_and_one(way: str | None, p: Floats, q: Floats, x: int, found: Floats) -> None:
    top = likeliest(q, len(found) - 1)
    if x in top:
        found[top.index(x)] = 1.0
        return
    rest = without(q, top)
    if way == "noise":
        found[len(top)] = coupled_weights(p, rest, x)[x]
    else:
        found[len(top)] = rest[x] if way == "draw" else rest[x] / p[x]


def _independent(p: Floats, q: Floats, x: int, count: int) -> Floats:
    """`rrs` with i.i.d. siblings: what a rejection leaves does not depend on the token, so nothing
    has to be averaged."""
    found, mass, tried = np.zeros(count), p[x], 1.0
    for place in range(count):
        found[place] = tried * min(p[x], q[x]) / mass
        left = np.maximum(p - q, 0.0)
        remaining = float(left.sum())
        if remaining == 0:
            break
        tried, p = tried * remaining, left / remaining
    return found


def _in_turn(law: Floats | None, left: Floats, x: int, count: int, seed: int) -> Floats:
    """Masses [count] with which x is drawn, without replacement from `left` [vocab], in each place
    and accepted there.

    law: the target's, judged as `rrs` does; None: x is accepted wherever it is."""
    rng = np.random.default_rng(seed)

    def places(law: Floats | None, left: Floats, count: int, budget: int) -> Floats:
        found = np.zeros(count)
        found[0] = left[x] if law is None else min(law[x], left[x])
        if count == 1:
            return found
        passed = left.copy() if law is None else np.maximum(left - law, 0.0)
        passed[x] = 0.0  # a rejected x has no mass left to be accepted with
        after = None if law is None else _normalised(np.maximum(law - left, 0.0))
        if not passed.any() or (after is not None and after[x] == 0):
            return found
        if count == 2:
            with np.errstate(divide="ignore", invalid="ignore"):
                drawn_next = np.where(left < 1, left[x] / (1 - left), 0.0)
            found[1] = float(
                passed @ (drawn_next if after is None else np.minimum(drawn_next, after[x]))
            )
            return found
        ways = list(_drawn(passed, rng, budget))
        for drawn, weight in ways:
            found[1:] += weight * places(
                after, without(left, [drawn]), count - 1, budget // len(ways)
            )
        return found

    return places(law, left, count, MOST)


def _drawn(masses: Floats, rng: np.random.Generator, budget: int) -> Iterator[tuple[int, float]]:
    """(token, weight) pairs that stand for `masses` [vocab]: all of them, or a few drawn in
    proportion."""
    possible = np.flatnonzero(masses)
    if len(possible) <= budget:
        yield from ((int(token), float(masses[token])) for token in possible)
        return
    total, few = float(masses.sum()), max(1, min(PLAYED, budget))
    for token in rng.choice(possible, size=few, p=masses[possible] / total):
        yield int(token), total / few


def _normalised(masses: Floats) -> Floats:
    total = masses.sum()
    return masses / total if total > 0 else masses
