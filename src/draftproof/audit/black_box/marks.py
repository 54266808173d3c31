"""What is noted of one emitted token when the law it should have been drawn from is known; the law
itself is forgotten.

Every number has a known expectation under the target's law: the surprise -log p its entropy, the
share q/(p + q) of the draft in the token its mean, the randomised transforms are uniform, and so
the sum of each, less what was expected, is a martingale.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.uniformity import randomised_pit
from draftproof.core.faults import faulty_laws
from draftproof.core.wealth import ratio

Vector = NDArray[np.float64]

GROUPS = 10
"""Groups of tokens, of about equal mass, that are counted context by context."""


@dataclass(frozen=True)
class Mark:
    """token: its id. probability: the target's for it. surprise, share: -log p and q/(p + q) less
    their expectations, each with its variance; no share without a draft. uniforms: by target, and
    with a draft by draft over target: uniform on [0, 1). group: of the token, group_shares: the
    mass of each group. ratios: cause -> how much likelier the fault makes the token. context: what
    has this very law whenever it comes again."""

    token: int
    probability: float
    surprise: tuple[float, float]
    share: tuple[float, float] | None
    uniforms: tuple[float, ...]
    group: int
    group_shares: tuple[float, ...]
    ratios: tuple[tuple[str, float], ...]
    context: Hashable


def mark(
    target: Vector,
    token: int,
    coin: float,
    *,
    context: Hashable,
    draft: Vector | None = None,
    before: Vector | None = None,
) -> Mark:
    """target, draft, before: laws [vocab], as in `faulty_laws`. coin: uniform on [0, 1),
    independent of the token."""
    # a token called impossible is 28 nats of surprise, not infinite
    logs = -np.log(np.maximum(target, 1e-12))
    orders = [-target]
    share = None
    if draft is not None:
        shares = draft / np.maximum(target + draft, 1e-300)
        share = _centred(shares, target, token)
        orders.append(shares)
    groups = _groups(target, orders[-1])
    return Mark(
        token,
        float(target[token]),
        _centred(logs, target, token),
        share,
        tuple(randomised_pit(target, token, coin, -order) for order in orders),
        int(groups[token]),
        tuple(np.bincount(groups, weights=target).tolist()),
        tuple(_ratios(target, token, draft, before)),
        context,
    )


def _ratios(
    target: Vector, token: int, draft: Vector | None, before: Vector | None
) -> Iterator[tuple[str, float]]:
    return ((cause, ratio(law, target, token)) for cause, law in faulty_laws(target, draft, before))


def _centred(score: Vector, target: Vector, token: int) -> tuple[float, float]:
    mean = float(score @ target)
    return float(score[token]) - mean, float((score - mean) ** 2 @ target)


def _groups(target: Vector, order: Vector) -> NDArray[np.int64]:
    """The group of each token [vocab]: neighbours in `order`, of about equal mass; as many groups
    as tokens at most."""
    if len(target) <= GROUPS:
        return np.arange(len(target))
    ranked = np.argsort(order, kind="stable")
    mass = np.cumsum(target[ranked]) - target[ranked] / 2
    groups = np.empty(len(target), dtype=np.int64)
    groups[ranked] = np.minimum((mass * GROUPS).astype(np.int64), GROUPS - 1)
    return groups
