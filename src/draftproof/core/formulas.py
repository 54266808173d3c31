"""What speculation brings, from acceptance and cost alone: closed forms, vectorised over NumPy
arrays.

Every function broadcasts its arguments and returns a float for scalars, an array otherwise.
Symbols: alpha, the chance that a draft is accepted; k, drafts a round (the papers' gamma); c, time
of a draft step over time of a target step; v, time of a target pass over k + 1 tokens over time of
one over a single token (1 when verification is free). Sources: Leviathan et al. 2211.17192, theorem
3.8 and corollary 3.9, with v added. The formulas in alpha assume that every draft is accepted
independently with the same chance; `expected_tokens_by_position` does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.errors import UsageError

Number = Any
"""A float for scalar arguments, else an array of their common shape."""

VerifyRatio = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""Number of tokens in a target pass -> its time over that of a pass over one token; see
`costs/verify_curve.py`."""

SUM_TOLERANCE = 1e-3  # a float32 softmax over 150,000 tokens stays well inside
LONGEST_DRAFT = 32


def acceptance_rate(p: ArrayLike, q: ArrayLike) -> Number:
    """sum_x min(p, q) over the last axis, = 1 - TV(p, q): the chance that a draft from law `q` is
    accepted by target law `p`.

    p, q: [..., vocab], each row non-negative with sum 1. No rule with one draft a position accepts
    more (maximal coupling)."""
    target, draft = checked_law("p", p), checked_law("q", q)
    if target.shape[-1] != draft.shape[-1]:
        raise UsageError(
            f"p has {target.shape[-1]} tokens and q has {draft.shape[-1]}; both must be "
            "over one vocabulary"
        )
    return np.minimum(target, draft).sum(axis=-1)[()]


def expected_tokens(alpha: ArrayLike, k: ArrayLike) -> Number:
    """Tokens a round emits on average: 1 + alpha + ... + alpha^k = (1 - alpha^(k+1)) / (1 - alpha).

    Exactly 1 at alpha 0 and k + 1 at alpha 1. The rejected draft's replacement or the bonus is the
    1."""
    rate, length = _rate("alpha", alpha), checked_length("k", k)
    with np.errstate(divide="ignore", invalid="ignore"):
        # 1 - alpha^(k+1) by expm1 keeps full accuracy near alpha = 1, where the plain difference
        # cancels
        tokens = -np.expm1((length + 1) * np.log1p(rate - 1)) / (1 - rate)
    return np.where(rate == 1, length + 1.0, tokens)[()]


def expected_tokens_by_position(rates: ArrayLike) -> Number:
    """Tokens a round emits when draft i, once reached, is accepted with rates[..., i]: 1 + r1 + r1
    r2 + ...

    rates: [..., k], conditional acceptance by position."""
    return 1.0 + np.cumprod(_rate("rates", rates), axis=-1).sum(axis=-1)[()]


def round_length_law(alpha: float, k: int) -> NDArray[np.float64]:
    """The law [k + 1] of the number of tokens a round emits: entry n - 1 is the chance of n
    tokens."""
    rate, length = float(_rate("alpha", alpha)), int(checked_length("k", k))
    reached = rate ** np.arange(length + 1)
    return reached * np.append(np.full(length, 1 - rate), 1.0)


def saturation(alpha: ArrayLike) -> Number:
    """1 / (1 - alpha): what tokens per round tend to as the draft grows without end; infinite at
    alpha 1."""
    rate = _rate("alpha", alpha)
    with np.errstate(divide="ignore"):
        return (1.0 / (1.0 - rate))[()]


def expected_speedup(
    alpha: ArrayLike, k: ArrayLike, cost_ratio: ArrayLike, verify_ratio: ArrayLike = 1.0
) -> Number:
    """Plain time per token over speculative time per token: expected_tokens / (v + k c).

    cost_ratio: c >= 0. verify_ratio: v = T(k + 1) / T(1) > 0, as measured; the default takes
    verification for free."""
    cost, verify = _cost("cost_ratio", cost_ratio), _positive("verify_ratio", verify_ratio)
    return expected_tokens(alpha, k) / (verify + checked_length("k", k) * cost)[()]


def break_even_cost(alpha: ArrayLike, k: ArrayLike, verify_ratio: ArrayLike = 1.0) -> Number:
    """The cost ratio at which k drafts neither gain nor lose: (expected_tokens - v) / k, for k >=
    1.

    Negative where verification alone costs more than the tokens bring: then no draft is cheap
    enough."""
    length, verify = checked_length("k", k, least=1), _positive("verify_ratio", verify_ratio)
    return (expected_tokens(alpha, length) - verify) / length[()]


def best_draft_length(
    alpha: ArrayLike,
    cost_ratio: ArrayLike,
    max_length: int = LONGEST_DRAFT,
    verify_ratio: VerifyRatio | None = None,
) -> Number:
    """The k in 0..max_length with the highest expected speedup, the smallest among equals; 0 when
    drafting does not pay.

    verify_ratio: a function from tokens in a pass to T(n) / T(1), asked for 1..max_length + 1;
    None: verification is free."""
    rate, cost = np.broadcast_arrays(_rate("alpha", alpha), _cost("cost_ratio", cost_ratio))
    lengths = np.arange(int(checked_length("max_length", max_length)) + 1)
    verify = np.ones(len(lengths)) if verify_ratio is None else verify_ratio(lengths + 1)
    gains = expected_speedup(rate[..., None], lengths, cost[..., None], verify)
    # a longer draft must gain more than rounding to be called better
    return np.argmax(gains >= gains.max(axis=-1, keepdims=True) * (1 - 1e-12), axis=-1)[()]


def checked_law(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """`values` as float64 [..., vocab]; refused, by `name`, unless every row is a law: finite,
    non-negative, sum 1."""
    law = _array(name, values)
    if law.ndim == 1 and law.size and law.min() >= 0 and abs(law.sum() - 1) <= SUM_TOLERANCE:
        return law  # the usual case, checked quickly; false as well when there is a nan
    law = _numbers(name, law)
    if law.ndim == 0 or law.shape[-1] == 0:
        raise UsageError(f"{name} must be a law over at least one token, got shape {law.shape}")
    if np.any(law < 0):
        raise UsageError(f"{name} must have no negative entries, got {_first(law, law < 0)}")
    total = law.sum(axis=-1)
    if np.any(wrong := np.abs(total - 1) > SUM_TOLERANCE):
        raise UsageError(
            f"{name} must sum to 1 over the vocabulary, got a sum of {_first(total, wrong)}"
        )
    return law


def _array(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(
            f"{name} must be a number or an array of numbers, got {values!r}"
        ) from None


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = _array(name, values)
    if not np.all(np.isfinite(array)):
        raise UsageError(f"{name} must be finite, got {_first(array, ~np.isfinite(array))}")
    return array


def _rate(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = _numbers(name, values)
    if np.any(wrong := (array < 0) | (array > 1)):
        raise UsageError(f"{name} must be between 0 and 1, got {_first(array, wrong)}")
    return array


def checked_length(name: str, values: ArrayLike, least: int = 0) -> NDArray[np.int64]:
    array = _numbers(name, values)
    if np.any(wrong := (array < least) | (array != np.floor(array))):
        raise UsageError(
            f"{name} must be a whole number of at least {least}, got {_first(array, wrong)}"
        )
    return array.astype(np.int64)


def _cost(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = _numbers(name, values)
    if np.any(array < 0):
        raise UsageError(f"{name} must be at least 0, got {_first(array, array < 0)}")
    return array


def _positive(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = _numbers(name, values)
    if np.any(array <= 0):
        raise UsageError(f"{name} must be greater than 0, got {_first(array, array <= 0)}")
    return array


def _first(array: NDArray[np.float64], wrong: NDArray[np.bool_]) -> str:
    return f"{np.atleast_1d(array)[np.atleast_1d(wrong)][0]:g}"
