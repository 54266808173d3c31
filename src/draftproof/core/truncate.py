"""Processed logits -> law on a CPU: temperature, top-k, top-p, min-p, a row at a time in NumPy, as
transformers defines them.

Only tokens that may survive are sorted, so a row of a large vocabulary costs little more than a
softmax:

- top-k: the maxima of disjoint blocks are logits too, so the k-th largest of them is no larger than
  the k-th largest logit; survivors are at least that.
- top-p: tokens below a bound are removed when together they weigh at most 1 - top_p. A bound of (1
  - top_p) / 4096 mostly serves; (1 - top_p) / vocab always does.

`core/dense.py` computes the same laws without these short cuts, for accelerators.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from draftproof.core.params import SamplingParams
from draftproof.core.records import Array

_BLOCK = 64
_BLOCKS_FROM = 4096
_PARTS = (4096, 32768)


@dataclass(frozen=True)
class Truncation:
    """The parameters between processed logits and law; `top_k` 0 is off."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float

    @classmethod
    def of(cls, params: SamplingParams, vocab_size: int) -> Truncation:
        top_k = params.top_k if 0 < params.top_k < vocab_size else 0
        return cls(params.temperature, top_k, params.top_p, params.min_p)

    @property
    def keeps_all(self) -> bool:
        """Whether no token is removed."""
        return not self.top_k and self.top_p == 1 and self.min_p == 0


def scale_and_divisor(temperature: float, itemsize: int) -> tuple[float, float]:
    """(s, d) such that x * s / d is x / temperature for differences x of `itemsize` bytes, whatever
    the temperature.

    A power of two first, so that neither d nor 1 / d overflows or is lost (accelerators multiply by
    1 / d), down to 5e-324. In float32, temperatures below 2^-160 act as 2^-160 and those above
    2^220 as 2^220: no float32 x tells them apart."""
    if itemsize == 4:
        if temperature < 2.0**-60:
            return 2.0**100, max(temperature, 2.0**-160) * 2.0**100
        if temperature > 2.0**100:
            return 2.0**-100, min(temperature * 2.0**-100, 2.0**120)
    elif temperature < 2.0**-500:
        return 2.0**600, temperature * 2.0**600
    return 1.0, temperature


def write_law(x: Array, top: Array, truncation: Truncation, out: Array) -> None:
    """The law of one row of processed logits `x` [vocab], whose maximum `top` is finite, into `out`
    [vocab]."""
    ids, mass = _survivors(x, top, truncation, out)
    if ids is None:
        mass /= mass.sum()
    else:
        out[:] = 0
        out[ids] = mass / mass.sum()


def write_scores(x: Array, top: Array, truncation: Truncation, out: Array) -> None:
    """As `write_law`, but logits divided by the temperature, their maximum 0, and -inf for removed
    tokens."""
    ids, _ = _survivors(x, top, truncation, out)
    if ids is None:
        _tempered(np.subtract(x, top, out=out), truncation.temperature)
    else:
        out[:] = -np.inf
        out[ids] = _tempered(x[ids] - top, truncation.temperature)


def _survivors(
    x: Array, top: Array, truncation: Truncation, space: Array
) -> tuple[Array | None, Array]:
    """Ids that are left (None: all, and then the masses lie in `space`) in rising order; masses
    relative to the top's 1."""
    ids = _top_k_ids(x, truncation.top_k) if truncation.top_k else None
    mass = np.subtract(x, top, out=space) if ids is None else x[ids] - top
    mass = np.exp(_tempered(mass, truncation.temperature), out=mass)
    if truncation.top_p < 1:
        ids, mass = _top_p(ids, mass, truncation.top_p)
    if truncation.min_p > 0:
        ids, mass = _chosen(ids, mass, mass >= truncation.min_p)
    return ids, mass


def _tempered(difference: Array, temperature: float) -> Array:
    """`difference` / `temperature`, in place."""
    if temperature != 1:
        scale, divisor = scale_and_divisor(temperature, difference.itemsize)
        if scale != 1:
            difference *= scale
        difference /= divisor
    return difference


def _top_k_ids(x: Array, k: int) -> Array:
    """Ids of the `k` largest of `x` and of all tied with the last of them; those at -inf may be
    left out."""
    width = x.size // _BLOCK
    ids = None
    if x.size >= _BLOCKS_FROM and k <= width:
        floor = _kth_largest(x[: width * _BLOCK].reshape(_BLOCK, width).max(axis=0), k)
        ids = np.flatnonzero(x >= floor) if floor > -np.inf else np.flatnonzero(x > floor)
        if ids.size <= k:
            return ids
    values = x if ids is None else x[ids]
    kept = np.flatnonzero(values >= _kth_largest(values, k))
    return kept if ids is None else ids[kept]


def largest_ids(x: Array, count: int) -> Array:
    """Ids of the `count` largest of `x` [vocab], the best first, the lowest id among equals; those
    at -inf may be left out."""
    if count < 1:
        return np.zeros(0, np.int64)
    ids = _top_k_ids(x, min(count, x.size))
    return ids[np.argsort(-x[ids], kind="stable")][:count]


def _kth_largest(values: Array, k: int) -> Array:
    place = values.size - k
    return np.partition(values, place)[place]


def _top_p(ids: Array | None, mass: Array, top_p: float) -> tuple[Array, Array]:
    """Remove the least tokens while together they have at most 1 - top_p of the mass; among tied
    ones the lower ids first."""
    total = mass.sum()
    removable = (1 - top_p) * total
    tail = 0.0
    if ids is None:
        ids, mass, tail = _above_tail(mass, total, removable)
    ascending = np.sort(mass)
    running = np.cumsum(ascending, dtype=np.float64) + tail
    first = min(int(np.searchsorted(running, removable, side="right")), mass.size - 1)
    least = ascending[first]
    num_tied = int(np.searchsorted(ascending, least, side="right")) - first
    kept = mass > least
    kept[np.flatnonzero(mass == least)[-num_tied:]] = True
    return _chosen(ids, mass, kept)


def _above_tail(mass: Array, total: Array, removable: Array) -> tuple[Array, Array, Array]:
    """(ids, their masses, mass of the others): without tokens too light to be kept."""
    for parts in (*_PARTS, mass.size):
        ids, heavy = _chosen(None, mass, mass >= 0.999 * removable / parts)
        tail = total - heavy.sum()
        if ids.size and tail <= removable:
            break
    return ids, heavy, tail


def _chosen(ids: Array | None, mass: Array, kept: Array) -> tuple[Array, Array]:
    places = np.flatnonzero(kept)
    return places if ids is None else ids[places], mass[places]
