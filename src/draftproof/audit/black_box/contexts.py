"""Counts of token groups, context by context, where contexts come again: prompts that are sent many
times, models with a short memory.

Deviations that differ in sign from context to context cancel in every other test; here each context
counts by itself."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from draftproof.audit.black_box.marks import Mark
from draftproof.audit.verdict import Finding
from draftproof.core.wealth import FLOOR, MOST

LEAST_EXPECTED = 5.0
"""Expected count of a group, below which it is joined with the others that are too small (Cochran
1954)."""
PRIOR = 20.0
"""Tokens that the target's own law is worth in what is foretold from counts."""


@dataclass
class ContextCounts:
    """seen: context -> count of each group. shares: context -> mass of each group, under the
    target's law."""

    seen: dict[Hashable, list[int]] = field(default_factory=dict)
    shares: dict[Hashable, tuple[float, ...]] = field(default_factory=dict)

    def see(self, mark: Mark) -> None:
        """One token."""
        counts = self.seen.setdefault(mark.context, [0] * len(mark.group_shares))
        counts[mark.group] += 1
        self.shares[mark.context] = mark.group_shares

    def ratio(self, mark: Mark) -> float:
        """How much likelier the counts of this context so far make the token's group than the
        target's law does."""
        counts = self.seen.get(mark.context)
        share = mark.group_shares[mark.group]
        if counts is None:
            return 1.0
        foretold = (counts[mark.group] + PRIOR * share) / (sum(counts) + PRIOR)
        kept = 1.0 - FLOOR
        return min(MOST, kept * foretold / (kept * share + FLOOR / len(counts)))

    def finding(self, name: str, control: ContextCounts | None = None) -> Finding | None:
        """Chi-square over all contexts with enough tokens; effect: its excess over the degrees of
        freedom, a token. None without any such context."""
        squared = freedom = 0.0
        n = 0
        for context, counts in self.seen.items():
            pair = None if control is None else control.seen.get(context)
            if control is not None and pair is None:
                continue
            one, degrees = _chi_square(
                np.array(counts, float), np.array(self.shares[context]), pair
            )
            squared, freedom, n = (
                squared + one,
                freedom + degrees,
                n + (sum(counts) if degrees else 0),
            )
        if not freedom:
            return None
        effect, half = (squared - freedom) / n, 1.96 * float(np.sqrt(2 * freedom)) / n
        return Finding(
            name,
            squared,
            float(stats.chi2.sf(squared, freedom)),
            None,
            effect,
            (effect - half, effect + half),
            n,
        )


def _chi_square(
    counts: np.ndarray, shares: np.ndarray, control: list[int] | None
) -> tuple[float, int]:
    """(statistic, degrees of freedom) of one context, small groups joined; (0, 0) with fewer than
    two groups left."""
    n = counts.sum()
    other = None if control is None else np.array(control, float)
    if other is not None:
        if not other.sum():
            return 0.0, 0
        shares = (counts + other) / (n + other.sum())
    least = LEAST_EXPECTED / (n if other is None else min(n, other.sum()))
    small = shares < least
    groups = [np.array([index]) for index in np.flatnonzero(~small)]
    if small.any():
        if shares[small].sum() >= least:
            groups.append(np.flatnonzero(small))
        elif groups:
            groups[-1] = np.concatenate([groups[-1], np.flatnonzero(small)])
    if len(groups) < 2:
        return 0.0, 0
    shares, counts = (
        np.array([part[group].sum() for group in groups]) for part in (shares, counts)
    )
    total = float(((counts - n * shares) ** 2 / (n * shares)).sum())
    if other is not None:
        others, m = np.array([other[group].sum() for group in groups]), other.sum()
        total += float(((others - m * shares) ** 2 / (m * shares)).sum())
    return total, len(groups) - 1
