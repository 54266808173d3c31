"""How small a bias a number of tokens would have shown.

The bias meant: in every context a mass moves from the half of the tokens that one order puts last
to the half that it puts first, by draft over target where a draft is known, else by likelihood. Its
transforms then have the mean of the first Legendre polynomial off by sqrt(3) times that mass, which
is the total variation. A bias that changes sign from context to context is not meant.
"""

from __future__ import annotations

import math

from scipy import optimize, stats

MISSED = 0.05
"""Chance of missing a bias of the size that is called detectable."""
PARTS = 4
"""Legendre polynomials of the test, see `legendre`."""


def detectable_bias(
    num_tokens: int, num_control: int | None, level: float, num_tests: int
) -> float:
    """Total variation a token that is found with probability 0.95. num_control: tokens of the
    control, None without one."""
    size = _effective(num_tokens, num_control)
    return (
        1.0 if size == 0 else min(1.0, math.sqrt(_noncentrality(level / num_tests) / (3.0 * size)))
    )


def tokens_needed(bias: float, num_control: int | None, level: float, num_tests: int) -> int:
    """Tokens for a bias of this size; with a control, of the audited engine and of the control
    each."""
    return math.ceil(_noncentrality(level / num_tests) / (3.0 * bias**2)) * (
        1 if num_control is None else 2
    )


def _effective(num_tokens: int, num_control: int | None) -> float:
    return (
        num_tokens
        if num_control is None
        else num_tokens * num_control / max(num_tokens + num_control, 1)
    )


def _noncentrality(share: float) -> float:
    """Of the chi-square that passes the threshold of `share` with probability 1 - MISSED."""
    threshold = stats.chi2.isf(share, PARTS)
    return float(
        optimize.brentq(lambda at: stats.ncx2.sf(threshold, PARTS, at) - (1.0 - MISSED), 1e-6, 1e4)
    )
