"""Arithmetic on laws: overlap, residual, and a draw by inverse distribution function that cannot
return a forbidden token.

A law is a vector [vocab] of probabilities, float32 or float64, NumPy or torch. Differences and sums
of masses are taken in float64, because near-equal laws cancel (algorithms of speculative sampling:
Leviathan et al. 2211.17192, section 2.3)."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, is_numpy_array, is_torch_array

from draftproof.core.records import Array

Scalar = int | Array
"""An int, or a 0-d integer array still on its device; `int()` it once, at the end, so that a round
waits for it once."""

_BLOCK = 256


def overlap(target_law: Array, draft_law: Array) -> Array:
    """sum_x min(target_law, draft_law) = 1 - TV, over the last axis; float64. The most any single
    draft can be accepted."""
    target_law, draft_law = as_numpy(target_law), as_numpy(draft_law)
    xp = array_namespace(target_law)
    return xp.sum(xp.minimum(target_law, draft_law), axis=-1, dtype=xp.float64)


def residual(target_law: Array, draft_law: Array) -> Array:
    """(target_law - draft_law)_+ [vocab], float64, not normalised; `target_law` itself where
    rounding left no mass.

    The empty residual has the probability of a rejection between equal laws, about 1e-7; what is
    drawn there does not matter as long as the target allows it. Laws in a CPU's memory give a NumPy
    array."""
    target_law, draft_law = as_numpy(target_law), as_numpy(draft_law)
    xp = array_namespace(target_law)
    target_law = xp.astype(target_law, xp.float64)
    positive = target_law - xp.astype(draft_law, xp.float64)
    positive = xp.where(positive > 0, positive, xp.zeros_like(positive))
    return xp.where(xp.sum(positive) > 0, positive, target_law)


def in_memory(array: Array) -> bool:
    """Whether the array lies in a CPU's memory, NumPy's or torch's, so that looking at a value
    waits for nothing."""
    return is_numpy_array(array) or (is_torch_array(array) and array.device.type == "cpu")


def as_numpy(array: Array) -> Array:
    """A CPU tensor as its NumPy view, anything else as it is. Rows of a vocabulary are cheaper to
    work on there: one thread, no thread pool to wake (benchmarks/record.md)."""
    return array.detach().numpy() if is_torch_array(array) and array.device.type == "cpu" else array


def inverse_cdf(law: Array, uniform: float) -> Scalar:
    """The token where the running sum of `law` first exceeds `uniform` * total, uniform in [0, 1):
    an int for a law in a CPU's memory, a 0-d integer array on an accelerator.

    Sums in float64, so a float32 law whose sum is not quite 1 is drawn from as if normalised. A
    token of probability zero never comes out: its running sum equals its predecessor's, and the
    index is held at the last token with mass."""
    law = as_numpy(law)
    if is_numpy_array(law):
        return _first_above(law, uniform)
    xp = array_namespace(law)
    running = xp.cumulative_sum(xp.astype(law, xp.float64))
    total = running[-1:]
    index = xp.searchsorted(running, total * uniform, side="right")
    last = xp.searchsorted(running, total, side="left")
    return xp.minimum(index, last)[0]


def _first_above(law: Array, uniform: float) -> int:
    """`inverse_cdf` in NumPy: first the block of tokens, then the token in it, so that a large law
    is summed but not copied."""
    whole = len(law) - len(law) % _BLOCK
    sums = law[:whole].reshape(-1, _BLOCK).sum(axis=1, dtype=np.float64)
    running = np.cumsum(np.append(sums, law[whole:].sum(dtype=np.float64)))
    goal = running[-1] * uniform
    block = _held(running, goal)
    before = running[block - 1] if block else 0.0
    start = block * _BLOCK
    return start + _held(before + np.cumsum(law[start : start + _BLOCK], dtype=np.float64), goal)


def _held(running: Array, goal: float) -> int:
    """Where `running` first exceeds `goal`, at most where it reaches its last value."""
    return int(
        min(
            np.searchsorted(running, goal, side="right"),
            np.searchsorted(running, running[-1], side="left"),
        )
    )
