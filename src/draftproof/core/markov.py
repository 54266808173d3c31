"""Tokens per round when acceptance depends on where in the text a round stands: exact, for finitely
many states.

Acceptance is not independent in practice. If what matters about the context is one of finitely many
states (the last token of a table model, a stretch of easy or hard text), the place where rounds
begin is itself a Markov chain and the long-run mean follows without simulation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def tokens_per_round(accept: ArrayLike, reject: ArrayLike, bonus: ArrayLike, k: int) -> float:
    """Long-run mean of the tokens a round of k drafts emits, replacement or bonus included.

    Each argument is a table [states, states] over (state before a token, state after it): `accept`,
    a draft is accepted; `reject`, it is replaced (accept + reject has rows that sum to 1); `bonus`,
    the token after the last accepted draft."""
    kept = np.asarray(accept, dtype=np.float64)
    tokens = sum(np.linalg.matrix_power(kept, i).sum(axis=1) for i in range(k + 1))
    return float(round_starts(accept, reject, bonus, k) @ tokens)


def round_starts(
    accept: ArrayLike, reject: ArrayLike, bonus: ArrayLike, k: int
) -> NDArray[np.float64]:
    """The law [states] of the state in which a round begins, in the long run; arguments as in
    `tokens_per_round`."""
    kept, ended, last = (np.asarray(table, dtype=np.float64) for table in (accept, reject, bonus))
    reached, moves = np.eye(len(kept)), np.zeros_like(kept)
    for _ in range(k):
        moves += reached @ ended
        reached = reached @ kept
    return stationary(moves + reached @ last)


def stationary(transition: ArrayLike) -> NDArray[np.float64]:
    """The law [states] that `transition` [states, states] leaves as it is; the least-norm one if
    there are several."""
    moves = np.asarray(transition, dtype=np.float64)
    size = len(moves)
    system = np.vstack([moves.T - np.eye(size), np.ones(size)])
    solution, *_ = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)
    return solution
