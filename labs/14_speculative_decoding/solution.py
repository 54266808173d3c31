"""Lab 14, the reference: the plain, slow twin of the library's `token` rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LawFunction = Callable[[tuple[int, ...]], np.ndarray]


def speculative_step(
    p_fn: LawFunction, q_fn: LawFunction, prefix: tuple[int, ...], k: int, rng: np.random.Generator
) -> list[int]:
    """Play one round after `prefix` and return the 1 to k + 1 tokens it emits."""
    drafts: list[int] = []
    draft_laws: list[np.ndarray] = []
    for _ in range(k):
        law = q_fn(prefix + tuple(drafts))
        drafts.append(int(rng.choice(len(law), p=law)))
        draft_laws.append(law)
    for i, (token, q) in enumerate(zip(drafts, draft_laws, strict=True)):
        p = p_fn(prefix + tuple(drafts[:i]))
        if rng.random() < min(1.0, p[token] / q[token]):
            continue
        residual = np.maximum(p - q, 0.0)
        # rounding can leave no residual between equal laws; the target's own law is then right
        left = residual / residual.sum() if residual.sum() > 0 else p
        return [*drafts[:i], int(rng.choice(len(left), p=left))]
    p = p_fn(prefix + tuple(drafts))
    return [*drafts, int(rng.choice(len(p), p=p))]


def acceptance_rate(p: np.ndarray, q: np.ndarray) -> float:
    """The overlap of the two laws."""
    return float(np.minimum(p, q).sum())


def expected_tokens(alpha: float, k: int) -> float:
    """The geometric sum 1 + alpha + ... + alpha^k."""
    if alpha == 1.0:
        return k + 1.0
    return (1 - alpha ** (k + 1)) / (1 - alpha)


def expected_speedup(alpha: float, k: int, cost_ratio: float) -> float:
    """Tokens of a round over its cost, in target passes."""
    return expected_tokens(alpha, k) / (k * cost_ratio + 1)
