"""The toy models that experiments, lab and tests share: small enough for every outcome to be
summed.

The chain over three tokens has overlap 0.6 after token 0 and 0.5 after tokens 1 and 2; the pair
ignores the prefix, so that acceptance really is independent, with overlap 0.8.

The chain is our reconstruction. The table of wrong implementations that `experiments bugs` sets
beside ours was published with the chain's overlaps and with a distance for each implementation, but
without the chain itself; this one was searched for until it showed those overlaps and distances.
That our distances agree with the published ones is therefore no independent confirmation of either.
What the table does show is that sampled and enumerated distances are the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TARGET_CHAIN: NDArray[np.float64] = np.array([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.1, 0.7, 0.2]])
DRAFT_CHAIN: NDArray[np.float64] = np.array([[0.2, 0.5, 0.3], [0.5, 0.3, 0.2], [0.6, 0.2, 0.2]])
PAIR_TARGET = np.array([0.5, 0.3, 0.2])
PAIR_DRAFT = np.array([0.3, 0.3, 0.4])
PREFIX = (0,)


def chain_target(prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """The chain's target law after `prefix` [3]."""
    law: NDArray[np.float64] = TARGET_CHAIN[prefix[-1]]
    return law


def chain_draft(prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """The chain's draft law after `prefix` [3]."""
    law: NDArray[np.float64] = DRAFT_CHAIN[prefix[-1]]
    return law


def pair_target(prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """The pair's target law [3], whatever the prefix."""
    return PAIR_TARGET


def pair_draft(prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """The pair's draft law [3], whatever the prefix."""
    return PAIR_DRAFT


def chain_law() -> NDArray[np.float64]:
    """The target's law of the two tokens after `PREFIX` [3, 3]."""
    law: NDArray[np.float64] = TARGET_CHAIN[PREFIX[-1]][:, None] * TARGET_CHAIN
    return law
