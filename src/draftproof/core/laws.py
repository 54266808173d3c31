"""Arithmetic on laws: overlap, residual, and a draw by inverse distribution function that cannot return a forbidden token.

A law is a vector [vocab] of probabilities, float32 or float64, NumPy or torch. Differences and sums of masses are taken in
float64, because near-equal laws cancel (algorithms of speculative sampling: Leviathan et al. 2211.17192, section 2.3).
"""

from __future__ import annotations

from array_api_compat import array_namespace

from draftproof.core.records import Array


def overlap(target_law: Array, draft_law: Array) -> Array:
    """sum_x min(target_law, draft_law) = 1 - TV, over the last axis; float64. The most any single draft can be accepted."""
    xp = array_namespace(target_law)
    return xp.sum(xp.minimum(target_law, draft_law), axis=-1, dtype=xp.float64)


def residual(target_law: Array, draft_law: Array) -> Array:
    """(target_law - draft_law)_+ [vocab], float64, not normalised; `target_law` itself where rounding left no mass.

    The empty residual has the probability of a rejection between equal laws, about 1e-7; what is drawn there does not matter
    as long as the target allows it."""
    xp = array_namespace(target_law)
    target_law = xp.astype(target_law, xp.float64)
    difference = target_law - xp.astype(draft_law, xp.float64)
    positive = xp.where(difference > 0, difference, xp.zeros_like(difference))
    return xp.where(xp.sum(positive) > 0, positive, target_law)


def inverse_cdf(law: Array, uniform: float) -> Array:
    """The token (0-d integer array) where the running sum of `law` first exceeds `uniform` * total, uniform in [0, 1).

    Sums in float64, so a float32 law whose sum is not quite 1 is drawn from as if normalised. A token of probability zero
    never comes out: its running sum equals its predecessor's, and the index is held at the last token with mass."""
    xp = array_namespace(law)
    running = xp.cumulative_sum(xp.astype(law, xp.float64))
    total = running[-1:]
    index = xp.searchsorted(running, total * uniform, side="right")
    last = xp.searchsorted(running, total, side="left")
    return xp.minimum(index, last)[0]
