"""Percentile bootstrap over prompts: how far a figure moves with the prompts it was taken on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
LEVEL = 0.90
SEED = 20240229
"""Fixed, so that the same figures give the same interval."""


@dataclass(frozen=True)
class Interval:
    """point with the interval that holds it with nominal probability LEVEL; low and high equal it
    for a single value."""

    point: float
    low: float
    high: float


def resampled(count: int, resamples: int = RESAMPLES, seed: int = SEED) -> NDArray[np.int64]:
    """Indices [resamples, count] drawn with replacement from 0..count-1."""
    return np.random.default_rng(seed).integers(count, size=(resamples, count))


def percentiles(values: Any, level: float = LEVEL) -> tuple[float, float]:
    """The middle `level` of values."""
    tail = 50 * (1 - level)
    low, high = np.percentile(np.asarray(values, dtype=np.float64), [tail, 100 - tail])
    return float(low), float(high)


def bootstrap(
    values: Sequence[float], statistic: Callable[..., Any] = np.median, level: float = LEVEL
) -> Interval:
    """`statistic` of values [n] (it must take `axis`) with its percentile interval over resampled
    values (Efron 1979)."""
    array = np.asarray(values, dtype=np.float64)
    point = float(statistic(array, axis=0))
    if len(array) == 1:
        return Interval(point, point, point)
    return Interval(point, *percentiles(statistic(array[resampled(len(array))], axis=1), level))
