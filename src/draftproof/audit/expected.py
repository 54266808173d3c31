"""Expected tokens of one round by the rules' formulas: what the enumerated loop must reproduce to rounding.

A round emits 1 + (number of drafts kept) tokens, so its expectation is 1 + sum over drafted paths of the probability that the
path is drafted and accepted. A missing bonus leaves the law exact; only this length shows it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.drafting import Plan

ON_A_CHAIN = {"rrs": "token", "k_seq": "token", "greedy_k": "token", "traversal": "block", "gumbel": "match"}
"""The rule each tree rule is when every node has one child. `gumbel` under the enumerator, whose draws are independent."""

LawOf = Callable[[tuple[int, ...], tuple[int, ...]], NDArray[np.float64]]


def expected_tokens_of_round(
    rule: str, target_law: LawOf, plan: Plan, context: tuple[int, ...], depth: int, ends: frozenset[int]
) -> float:
    """Expected emitted tokens of the round after `context` with drafts at most `depth` long.

    rule: "match" weighs a drafted token by p*q, "token" by min(p, q), "block" keeps the capped joint ratio times the draft's
    probability (2403.10444, theorem 1). On a chain every other rule is one of these, see `ON_A_CHAIN`. A guess has a one-hot
    draft law. Nothing is emitted after a token of `ends`."""
    rule = ON_A_CHAIN.get(rule, rule)

    def below(path: tuple[int, ...], drafted: float, weight: float, joint: float) -> float:
        """Sum of the acceptance weights of all paths under `path`."""
        choice = plan(context, path) if len(path) < depth else None
        if choice is None:
            return 0.0
        p = target_law(context, path)
        q = np.eye(len(p))[choice] if isinstance(choice, int) else np.asarray(choice)
        total = 0.0
        for token in np.flatnonzero(q):
            chance = drafted * q[token]
            ratio = min(1.0, joint * p[token] / q[token])
            weights = {
                "match": weight * q[token] * p[token],
                "token": weight * min(q[token], p[token]),
                "block": chance * ratio,
            }
            kept = weights[rule]
            if kept == 0.0 and rule != "block":
                continue
            if int(token) not in ends:
                total += kept + below((*path, int(token)), chance, kept, ratio)
        return total

    return 1.0 + below((), 1.0, 1.0, 1.0)
