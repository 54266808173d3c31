"""Evidence from one kind of event, draw after draw: bets on every fault, and numbers that should be
uniform.

The bets are those of `core/wealth.py`; the numbers are those of `audit/uniformity.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.uniformity import anderson_darling, kolmogorov_distance
from draftproof.audit.verdict import Finding
from draftproof.core.wealth import FLOOR, Wealth

Vector = NDArray[np.float64]
MOST_BETS = 96
"""Bets that the starting capital is divided among."""


class Bets(Wealth):
    """Wealth of bets that are not always offered: what is never put on one of MOST_BETS stays what
    it was."""

    def see(
        self, ratios: Iterable[tuple[str, float]], discounts: Any = None, *, rounding: float = 0.0
    ) -> None:
        """One event. rounding: of the target's log-probabilities, in nats; its square is what it
        may win for a bet."""
        super().see(ratios, discounts)
        if rounding:
            self.logs = {bet: wealth - rounding**2 for bet, wealth in self.logs.items()}

    @property
    def log_e(self) -> float:
        """Log of the mean wealth."""
        logs = np.zeros(MOST_BETS)
        logs[: len(self.logs)] = list(self.logs.values())
        top = float(logs.max())
        return top + math.log(float(np.exp(logs - top).mean()))


@dataclass
class DrawStream:
    """Draws from laws known one by one. name: for the report. floor: mass that the null is given
    over the whole vocabulary, so that one token that rounding let through decides nothing."""

    name: str
    floor: float = FLOOR
    bets: Bets = field(default_factory=Bets)
    numbers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def see(
        self,
        law: Vector,
        token: int,
        alternatives: Iterable[tuple[str, Vector]],
        uniforms: dict[str, float],
        rounding: float = 0.0,
    ) -> None:
        """One draw. law: the null's, normalised; uniforms: order -> number of the draw under it."""
        chance = (1.0 - self.floor) * float(law[token]) + self.floor / len(law)
        ratios = (
            (cause, float(other[token]) / float(other.sum()) / chance)
            for cause, other in alternatives
            if other.sum() > 0
        )
        self.bets.see(ratios, rounding=rounding)
        for order, number in uniforms.items():
            self.numbers[order].append(number)

    def findings(self) -> list[Finding]:
        """One for each order of the tokens, and one for the bets."""
        if self.bets.n == 0:
            return []
        found = [
            _uniform_finding(f"{self.name}, {order}", numbers, self.floor)
            for order, numbers in self.numbers.items()
        ]
        return [*found, bet_finding(self.name, self.bets)]


def _uniform_finding(name: str, numbers: list[float], floor: float) -> Finding:
    statistic, p_value = anderson_darling(numbers, floor)
    distance, half = kolmogorov_distance(numbers)
    return Finding(
        name,
        statistic,
        p_value,
        None,
        distance,
        (max(distance - half, 0.0), min(distance + half, 1.0)),
        len(numbers),
    )


def bet_finding(name: str, bets: Bets) -> Finding:
    """statistic and effect: log e, as a whole and a draw."""
    log_e = bets.log_e
    mean = log_e / bets.n
    return Finding(
        f"{name}, bets on faults",
        log_e,
        None,
        math.exp(min(log_e, 700.0)),
        mean,
        (mean, mean),
        bets.n,
    )
