"""The clock of a simulated generation: rounds until enough tokens are out, each paying for its
drafts and one target pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from draftproof.core.formulas import checked_length
from draftproof.errors import UsageError
from draftproof.simulate.acceptance import NextRound

VerifyCost = Callable[[int], float]
"""Tokens in a target pass -> its time over that of a pass over one token, as
`costs.verify_curve.VerifyCurve` gives it."""


def run_generation(
    next_round: NextRound,
    total_tokens: int,
    num_draft: int,
    draft_time_ms: float,
    target_time_ms: float,
    verify_ratio: VerifyCost | None = None,
) -> dict[str, float]:
    """Emit exactly `total_tokens`; the last round is cut there, its time counts whole. verify_ratio
    None: always 1.

    Keys: tokens, rounds, speculative_time_ms, standard_time_ms, speedup, tokens_per_round; and
    drafted, accepted (replacement and bonus not counted, cut with the last round),
    draft_acceptance_rate (nan when nothing was drafted)."""
    total = int(checked_length("total_tokens", total_tokens, least=1))
    length = int(checked_length("num_draft", num_draft))
    check_times(draft_time_ms, target_time_ms)
    tokens = rounds = drafted = accepted = 0
    spent = 0.0
    while tokens < total:
        proposed, kept = next_round(length)
        room = total - tokens
        rounds += 1
        tokens += min(kept + 1, room)
        drafted += proposed
        accepted += min(kept, room)
        spent += proposed * draft_time_ms + target_time_ms * (
            1.0 if verify_ratio is None else float(verify_ratio(proposed + 1))
        )
    standard = total * target_time_ms
    return {
        "tokens": tokens,
        "rounds": rounds,
        "speculative_time_ms": spent,
        "standard_time_ms": standard,
        "speedup": standard / spent,
        "tokens_per_round": tokens / rounds,
        "drafted": drafted,
        "accepted": accepted,
        "draft_acceptance_rate": accepted / drafted if drafted else float("nan"),
    }


def check_times(draft_time_ms: float, target_time_ms: float) -> None:
    """Refuse step times that cannot be."""
    if not (np.isfinite(draft_time_ms) and draft_time_ms >= 0):
        raise UsageError(f"draft_time_ms must be at least 0, got {draft_time_ms}")
    if not (np.isfinite(target_time_ms) and target_time_ms > 0):
        raise UsageError(f"target_time_ms must be greater than 0, got {target_time_ms}")
