"""Processed logits -> laws for all rows at once, over the array API and by full sorts: for
accelerators, where a sort is cheap and a transfer is not, for tensors when nothing is removed, and
as the plain twin of `core/truncate.py`."""

from __future__ import annotations

import math

from array_api_compat import array_namespace, is_torch_array

from draftproof.core.records import Array
from draftproof.core.truncate import Truncation, scale_and_divisor


def dense_laws(x: Array, truncation: Truncation) -> Array:
    """Laws [n, vocab] of processed logits `x` [n, vocab]; NaN throughout a row without a finite
    maximum."""
    if truncation.keeps_all and truncation.temperature == 1:
        return softmax(x)
    return softmax(dense_scores(x, truncation))


def dense_scores(x: Array, truncation: Truncation) -> Array:
    """Logits divided by the temperature [n, vocab], their maximum 0, and -inf for removed
    tokens."""
    xp = array_namespace(x)
    if truncation.top_k:
        x = xp.where(x < _kth_largest(x, truncation.top_k), -math.inf, x)
    x = x - xp.max(x, axis=-1, keepdims=True)
    scale, divisor = scale_and_divisor(truncation.temperature, x.itemsize)
    if scale != 1:
        x = x * scale
    if divisor != 1:
        x = x / divisor
    if truncation.top_p < 1:
        x = xp.where(_outside_top_p(softmax(x), truncation.top_p), -math.inf, x)
    if truncation.min_p > 0:
        x = xp.where(xp.exp(x) < truncation.min_p, -math.inf, x)
    return x


def softmax(x: Array) -> Array:
    """exp(x) / sum of exp(x) over the last axis, for any finite maximum."""
    if is_torch_array(x):
        return x.softmax(-1)
    xp = array_namespace(x)
    mass = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return mass / xp.sum(mass, axis=-1, keepdims=True)


def _kth_largest(x: Array, k: int) -> Array:
    if is_torch_array(x):
        return x.topk(k, dim=-1).values[:, -1:]
    return array_namespace(x).sort(x, axis=-1)[:, -k : x.shape[-1] - k + 1]


def _outside_top_p(law: Array, top_p: float) -> Array:
    """Which tokens top-p removes, lower ids first among tied ones; never the last in rising
    order."""
    xp = array_namespace(law)
    order = xp.argsort(law, axis=-1, stable=True)
    running = xp.cumulative_sum(xp.take_along_axis(law, order, axis=-1), axis=-1)
    removed = running <= 1 - top_p
    removed[:, -1] = False
    return xp.take_along_axis(removed, xp.argsort(order, axis=-1), axis=-1)
