"""Tests on draws whose law is known one by one: each becomes a number that is uniform if it was
drawn from its law.

Randomised probability integral transform: with the tokens put into any order that does not look at
the draw, F the mass before the token and V an independent coin, F + V * law(token) is uniform on
[0, 1), and independent of everything before."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def randomised_pit(law: Vector, token: int, coin: float, key: Vector | None = None) -> float:
    """The number of `token` under `law` [vocab], tokens in descending order of `key` [vocab] (None:
    of id, ascending).

    coin: uniform in [0, 1), independent of the token."""
    if key is None:
        before = law[:token].sum()
    else:
        same = key[:token] == key[token]
        before = law[key > key[token]].sum() + law[:token][same].sum()
    return float(min(max((before + coin * law[token]) / law.sum(), 0.0), 1.0))


def anderson_darling(values: Sequence[float], least: float = 1e-6) -> tuple[float, float]:
    """A^2 and the p-value of numbers that should be uniform on [0, 1); (0, 1) without any. least:
    how near to 0 and 1 a number counts; one that is impossible is then much evidence, and not all
    of it.

    p by Marsaglia and Marsaglia (2004) where it is above 3e-4; beyond, the leading term of the tail
    of the limit law, sqrt(3) erfc(sqrt(A^2)), which is within some percent of it from there on.
    Good from about five numbers on."""
    n = len(values)
    if n == 0:
        return 0.0, 1.0
    ordered = np.clip(np.sort(np.asarray(values, dtype=float)), least, 1.0 - least)
    weights = 2.0 * np.arange(1, n + 1) - 1.0
    statistic = float(-n - np.mean(weights * (np.log(ordered) + np.log1p(-ordered[::-1]))))
    return statistic, _tail(max(statistic, 1e-3))


def _tail(z: float) -> float:
    if z >= 7.0:
        return min(math.sqrt(3.0) * math.erfc(math.sqrt(z)), 1.0)
    if z < 2.0:
        inner = 0.0347962 - (0.0116720 - 0.00168691 * z) * z
        series = 2.00012 + (0.247105 - (0.0649821 - inner * z) * z) * z
        return 1.0 - math.exp(-1.2337141 / z) / math.sqrt(z) * series
    inner = 0.082433 - (0.008056 - 0.0003146 * z) * z
    return 1.0 - math.exp(-math.exp(1.0776 - (2.30695 - (0.43424 - inner * z) * z) * z))


def kolmogorov_distance(values: Sequence[float]) -> tuple[float, float]:
    """The largest distance between the numbers' distribution and the uniform one, and the
    half-width of its 95% interval (Dvoretzky-Kiefer-Wolfowitz). The distance is a lower bound of
    the total variation between law and draws."""
    n = len(values)
    if n == 0:
        return 0.0, 1.0
    ordered = np.sort(np.asarray(values, dtype=float))
    ranks = np.arange(1, n + 1) / n
    distance = float(max((ranks - ordered).max(), (ordered - ranks + 1.0 / n).max()))
    return distance, math.sqrt(math.log(2.0 / 0.05) / (2.0 * n))


def normal_p_value(z: float) -> float:
    """Two-sided."""
    return math.erfc(abs(z) / math.sqrt(2.0))


def normal_score(uniform: float) -> float:
    """The standard normal quantile of a number in (0, 1)."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(min(max(uniform, 1e-12), 1.0 - 1e-12))
