"""Marks of many tokens, and the tests on them.

With a control, texts of the same engine without speculation, every test compares with the control
instead of with the scorer's own law: what kernels and number formats make of the law is in both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from draftproof.audit.black_box.contexts import ContextCounts
from draftproof.audit.black_box.marks import Mark
from draftproof.audit.verdict import Finding
from draftproof.core.wealth import LastingWealth

Matrix = NDArray[np.float64]

ORDERS = ("by likelihood", "by draft over target")
CONFIDENCE = 3.5
"""Standard errors above the control's mean that a bet is allowed to win by rounding alone."""
BY_CONTEXT = "laws that differ from context to context, as noise that is used again makes them"
SURPRISE, SHARE, SERIAL, COUNTS = "surprise", "draft's share", "serial", "per context"
BETS = "bets on faults"


@dataclass
class Evidence:
    """Everything noted of one engine's tokens, in order."""

    marks: list[Mark] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    counts: ContextCounts = field(default_factory=ContextCounts)
    wealth: LastingWealth = field(default_factory=LastingWealth)
    discounts: Mapping[tuple[str, int], float] = field(default_factory=dict)
    _ratios: list[tuple[float, ...]] = field(default_factory=list)
    _causes: tuple[str, ...] = ()

    def begin_text(self) -> None:
        """The next mark is the first of a text."""
        self.starts.append(len(self.marks))

    def see(self, mark: Mark) -> None:
        """One token."""
        ratios = (*mark.ratios, (BY_CONTEXT, self.counts.ratio(mark)))
        self.counts.see(mark)
        self.wealth.see(ratios, self.discounts)
        self.marks.append(mark)
        self._ratios.append(tuple(value for _, value in ratios))
        if len(ratios) > len(self._causes):
            self._causes = tuple(cause for cause, _ in ratios)

    def rounding(self) -> dict[tuple[str, int], float]:
        """Of a control: by how much the expectation of each ratio may exceed 1, whatever the
        reason."""
        places: dict[str, int] = defaultdict(lambda: -1)
        found = {}
        values = np.array([row for row in self._ratios if len(row) == len(self._causes)]) - 1.0
        for column, cause in enumerate(self._causes):
            places[cause] += 1
            mean, error = values[:, column].mean(), values[:, column].std() / np.sqrt(len(values))
            found[cause, places[cause]] = max(0.0, float(mean + CONFIDENCE * error))
        return found

    def scores(self) -> Iterator[tuple[str, Matrix, Matrix]]:
        """(test, scores [n, d] of mean 0 under the target's law, their variances [n, d])."""
        surprise = np.array([mark.surprise for mark in self.marks])
        yield SURPRISE, surprise[:, :1], surprise[:, 1:]
        if self.marks[0].share is not None:
            share = np.array([mark.share for mark in self.marks])
            yield SHARE, share[:, :1], share[:, 1:]
        uniforms = np.array([mark.uniforms for mark in self.marks])
        for column in range(uniforms.shape[1]):
            smooth = legendre(uniforms[:, column])
            yield f"PIT {ORDERS[column]}", smooth, np.ones_like(smooth)
        # bounded: products of normal scores have tails that cost false alarms
        centred = np.sqrt(12.0) * (uniforms[:, -1] - 0.5)
        inside = np.ones(len(centred), dtype=bool)
        inside[[start for start in self.starts if start < len(centred)]] = False
        serial = (centred[1:] * centred[:-1])[inside[1:], None]
        if len(serial):
            yield SERIAL, serial, np.ones_like(serial)

    def findings(self, control: Evidence | None = None) -> list[Finding]:
        """Of every test at a sample size that was fixed before, the bets included."""
        against = (
            {}
            if control is None
            else {name: (score, variance) for name, score, variance in control.scores()}
        )
        found = [
            score_finding(name, score, variance, against.get(name))
            for name, score, variance in self.scores()
        ]
        counted = self.counts.finding(COUNTS, None if control is None else control.counts)
        return [*found, *([counted] if counted else []), self.bets()]

    def bets(self) -> Finding:
        """The anytime-valid one alone: wealth at its highest, in nats, as a whole and a token."""
        mean = self.wealth.highest / max(self.wealth.n, 1)
        return Finding(
            BETS,
            self.wealth.highest,
            None,
            float(np.exp(min(self.wealth.highest, 700.0))),
            mean,
            (mean, mean),
            self.wealth.n,
        )

    def repeated_contexts(self) -> Iterator[Hashable]:
        """Contexts seen more than once."""
        return (context for context, seen in self.counts.seen.items() if sum(seen) > 1)


def legendre(uniforms: NDArray[np.float64]) -> Matrix:
    """The first four Legendre polynomials, orthonormal on [0, 1] [n, 4]: Neyman's smooth test of
    uniformity (1937)."""
    x = 2.0 * uniforms - 1.0
    rows = [
        np.polynomial.legendre.Legendre.basis(degree)(x) * np.sqrt(2 * degree + 1)
        for degree in (1, 2, 3, 4)
    ]
    return np.stack(rows, axis=1)


def score_finding(
    name: str, score: Matrix, variance: Matrix, control: tuple[Matrix, Matrix] | None
) -> Finding:
    """statistic: z, or chi-square where scores have several parts. effect: mean of the first part,
    less the control's."""
    n = len(score)
    means, errors = score.mean(axis=0), np.maximum(variance.mean(axis=0) / n, 1e-300)
    if control is not None:
        means = means - control[0].mean(axis=0)
        errors = errors + np.maximum(control[1].mean(axis=0) / len(control[0]), 1e-300)
    z = means / np.sqrt(errors)
    squared = float((z**2).sum())
    half = 1.96 * float(np.sqrt(errors[0]))
    statistic = float(z[0]) if len(z) == 1 else squared
    p_value = float(stats.chi2.sf(squared, len(z)))
    return Finding(
        name,
        statistic,
        p_value,
        None,
        float(means[0]),
        (float(means[0]) - half, float(means[0]) + half),
        n,
    )
