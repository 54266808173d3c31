"""The law of an emitted token under an engine that does one thing wrong, beside the target's law it
should have.

An auditor who sees tokens alone bets on these laws. Under the right law the expectation of
law(token) / target(token) is 1, so that whoever bets on a fault that is not there wins nothing; the
fault that is there is the one whose bet grows. Each law is that of a position which the rule
verifies; bonus tokens dilute it, which stakes below 1 allow for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

NO_RESIDUAL = "no residual: a replacement is drawn from the target's whole law"
WRONG_RESIDUAL = "wrong residual: not (target - draft)+"
TEMPERATURE = "temperature on one side"
WRONG_DRAFT_LAW = "wrong q: the law in the acceptance ratio is not the one drafts are drawn from"
ARG_MAX = "arg max where a draw is due"
OFF_BY_ONE = "off by one: the target's row of another position"
REUSED_NOISE = "reused noise: two draws share their random number"
ACCEPTS_ALL = "accepts every draft"
INVERTED = "ratio inverted: draft over target"
FRESH_REDRAW = "match, then a fresh redraw: the sample that did not match is thrown away"
FOREIGN = "tokens that do not belong to their context"
CUT_TAIL = "a cut tail: unlikely tokens never come, as where top_k, top_p or min_p is left on"

TEMPERATURES = (0.5, 0.7, 1.4, 2.0)
LIKELIEST = (20, 50)
"""Tokens that engines keep where nothing is said of top_k."""
MASSES = (0.8, 0.95)
"""Mass that engines keep where nothing is said of top_p."""
NODES, WEIGHTS = np.polynomial.laguerre.laggauss(6)
MOST_TOKENS = 4096
"""Vocabularies up to this size are looked at for reused noise: beyond, the law costs more than a
token of most models."""


def faulty_laws(
    target: Vector, draft: Vector | None = None, before: Vector | None = None
) -> Iterator[tuple[str, Vector]]:
    """(cause, law) of every fault. target: the law there [vocab], normalised. draft: the draft's,
    known or guessed. before: the target's one position earlier. Always the same causes in the same
    order for the same arguments that are not None."""
    yield from ((TEMPERATURE, tempered(target, temperature)) for temperature in TEMPERATURES)
    best = int(target.argmax())
    yield ARG_MAX, one_hot(best, len(target))
    yield FOREIGN, np.full_like(target, 1.0 / len(target))
    yield from ((CUT_TAIL, law) for law in cut_laws(target))
    if before is not None:
        yield OFF_BY_ONE, before
    if draft is not None:
        yield from _with_draft(target, draft, best)


def _with_draft(target: Vector, draft: Vector, best: int) -> Iterator[tuple[str, Vector]]:
    kept = np.minimum(target, draft)
    residual = _some(target - kept, target)
    yield NO_RESIDUAL, _completed(kept, target)
    yield WRONG_RESIDUAL, _completed(kept, np.abs(target - draft))
    yield WRONG_RESIDUAL, _completed(kept, _some(draft - kept, target))
    inverted = draft * np.minimum(1.0, draft / np.maximum(target, 1e-300))
    yield INVERTED, _completed(inverted, residual)
    yield ACCEPTS_ALL, draft
    matched = one_hot(best, len(target)) * draft[best]
    yield ARG_MAX, _completed(matched, target)
    yield FRESH_REDRAW, _completed(target * draft, target)
    with np.errstate(divide="ignore", invalid="ignore"):
        passes = np.where(draft > 0, np.minimum(1.0, target / draft), 0.0)
    for temperature in TEMPERATURES:
        yield TEMPERATURE, _completed(tempered(draft, temperature) * passes, residual)
    away = target * (target / np.maximum(target + draft, 1e-300))
    yield WRONG_DRAFT_LAW, away / away.sum()
    if len(target) <= MOST_TOKENS:
        yield REUSED_NOISE, _reused(target, draft, kept, residual)


def _reused(target: Vector, draft: Vector, kept: Vector, residual: Vector) -> Vector:
    """Draft and replacement drawn by one race of exponential clocks: the drafted token wins at time
    t under the draft's rates, so that every other token's clock is known to be later than t
    draft(token), and starts so late in the race under the residual's.

    The law of the race is summed over t by Gauss-Laguerre quadrature."""
    running = np.flatnonzero(residual)
    rates, starts = residual[running], draft[running] / residual[running]
    order = np.argsort(starts)
    rates, starts = rates[order], starts[order]
    total = np.cumsum(rates)
    winners = np.zeros(len(running))
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        gaps = np.diff(starts * node)
        survived = np.exp(-np.concatenate([[0.0], np.cumsum(total[:-1] * gaps)]))
        ended = np.concatenate([survived[1:], [0.0]])
        shares = (
            survived - ended
        ) / total  # of the race, per unit of rate, between one start and the next
        winners += weight * rates * np.cumsum(shares[::-1])[::-1]
    law = np.zeros_like(target)
    law[running[order]] = winners
    return _completed(kept, law)


def tempered(law: Vector, temperature: float) -> Vector:
    """law^(1/temperature), normalised."""
    mass: Vector = law ** (1.0 / temperature)
    return mass / mass.sum()


def cut_laws(law: Vector) -> Iterator[Vector]:
    """The law without its unlikely tokens, normalised: by LIKELIEST, then by MASSES."""
    ordered = np.sort(law)[::-1]
    masses = np.cumsum(ordered)
    places = [min(number, len(law)) - 1 for number in LIKELIEST]
    places += [min(int(np.searchsorted(masses, mass)), len(law) - 1) for mass in MASSES]
    for place in places:
        kept = np.where(law >= ordered[place], law, 0.0)
        yield kept / kept.sum()


def one_hot(token: int, size: int) -> Vector:
    """All mass on one token."""
    law = np.zeros(size)
    law[token] = 1.0
    return law


def _completed(kept: Vector, rest: Vector) -> Vector:
    """The accepted mass [vocab], and what is missing to 1 after the law `rest`."""
    mass = rest.sum()
    law: Vector = kept + (1.0 - kept.sum()) * rest / mass if mass > 0 else kept / kept.sum()
    return law


def _some(mass: Vector, otherwise: Vector) -> Vector:
    total = mass.sum()
    return mass / total if total > 0 else otherwise


def quick_ratios(
    target: Vector, token: int, draft: Vector | None, before: Vector | None
) -> Iterator[tuple[str, float]]:
    """(cause, law(token) / target(token)) of the faults that cost least to look at, for those who
    look while decoding. Always six in the same order; where `draft` or `before` is None theirs are
    1: a bet that is not made."""
    chance = max(float(target[token]), 1e-300)
    warm = np.sqrt(target)
    # no dot product: the threads it wakes spin on, and the target's next passes take three times as
    # long (benchmarks/monitor_cost.py)
    yield TEMPERATURE, chance / float(np.square(target).sum())
    yield TEMPERATURE, float(warm[token]) / float(warm.sum()) / chance
    yield FOREIGN, 1.0 / len(target) / chance
    yield OFF_BY_ONE, 1.0 if before is None else float(before[token]) / chance
    yield ACCEPTS_ALL, 1.0 if draft is None else float(draft[token]) / chance
    if draft is None:
        yield NO_RESIDUAL, 1.0
        return
    kept = float(np.minimum(target, draft).sum())
    yield NO_RESIDUAL, min(float(draft[token]) / chance, 1.0) + 1.0 - kept
