"""What several drafts at one position can bring at most, and what each rule makes of them: closed
forms in float64.

Laws are vectors [vocab] that sum to 1. Every function is the probability that one of the drafts is
the emitted token. The optimum is that of the transport problem: over all couplings of Y ~ target
with the set of drafts, the greatest chance that Y is among them (SpecTr 2310.15141; min cut and its
order by Hu et al. 2502.18779).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.core.formulas import checked_law, checked_length
from draftproof.core.rules.k_seq import division_factor
from draftproof.errors import UsageError

Vector = NDArray[np.float64]


def iid_bound(target_law: ArrayLike, draft_law: ArrayLike, k: int) -> float:
    """The optimum for k i.i.d. drafts: 1 + min over sets H of [target(H) - draft(H)^k], in O(V log
    V).

    By max-flow min-cut; the minimum is attained on a prefix of the tokens ordered by draft/target,
    the largest first."""
    p, q = _laws(target_law, draft_law)
    k = int(checked_length("k", k, least=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(q > 0, np.where(p > 0, q / p, np.inf), 0.0)
    order = np.argsort(-ratio, kind="stable")
    cuts = np.cumsum(p[order]) - np.minimum(np.cumsum(q[order]), 1.0) ** k
    return float(1.0 + min(0.0, cuts.min()))


def rrs_iid_acceptance(target_law: ArrayLike, draft_law: ArrayLike, k: int) -> float:
    """`rrs` with k i.i.d. siblings: 1 - prod_i (1 - sum min(P_i, q)), P_i the law that i rejections
    leave."""
    p, q = _laws(target_law, draft_law)
    rejected = 1.0
    for _ in range(int(checked_length("k", k, least=1))):
        left = np.maximum(p - q, 0.0)
        rejected *= left.sum()
        if left.sum() == 0.0:
            return 1.0
        p = left / left.sum()
    return float(1.0 - rejected)


def k_seq_acceptance(target_law: ArrayLike, draft_law: ArrayLike, k: int) -> float:
    """`k_seq`: 1 - (1 - beta)^k with beta = sum min(q, p/rho*)."""
    p, q = _laws(target_law, draft_law)
    k = int(checked_length("k", k, least=1))
    beta = np.minimum(q, p / division_factor(p, q, k)).sum()
    return float(1.0 - (1.0 - beta) ** k)


def greedy_k_acceptance(target_law: ArrayLike, draft_law: ArrayLike, k: int) -> float:
    """`greedy_k`: p(T) + sum outside T of min(p, q'), T the k - 1 likeliest tokens of the draft, q'
    the draft law without T."""
    p, q = _laws(target_law, draft_law)
    top = np.argsort(-q, kind="stable")[: int(checked_length("k", k, least=1)) - 1]
    rest = q.copy()
    rest[top] = 0.0
    rest = rest / rest.sum() if rest.sum() > 0 else rest
    return float(p[top].sum() + np.minimum(p, rest).sum())


def gumbel_acceptance(target_law: ArrayLike, draft_law: ArrayLike) -> float:
    """`gumbel` with one draft: sum_x 1 / sum_y max(p_y/p_x, q_y/q_x), between (1 - TV)/(1 + TV) and
    1 - TV. O(V log V).

    The greater of p_y/p_x and q_y/q_x is the first where p_y/q_y is above p_x/q_x, so two running
    sums over the tokens in the order of that ratio hold all the inner sums."""
    p, q = _laws(target_law, draft_law)
    p, q = p[(p > 0) | (q > 0)], q[(p > 0) | (q > 0)]
    with np.errstate(divide="ignore"):
        order = np.argsort(p / q, kind="stable")
    p, q = p[order], q[order]
    above, below = np.append(np.cumsum(p[::-1])[::-1][1:], 0.0), np.cumsum(q)
    both = (p > 0) & (q > 0)
    return float((1.0 / (above[both] / p[both] + below[both] / q[both])).sum())


def _laws(target_law: ArrayLike, draft_law: ArrayLike) -> tuple[Vector, Vector]:
    p, q = checked_law("target_law", target_law), checked_law("draft_law", draft_law)
    if p.ndim != 1 or p.shape != q.shape:
        raise UsageError(
            f"both laws must be vectors over one vocabulary, got shapes {p.shape} and {q.shape}"
        )
    return p, q
