"""Evidence from one kind of event, draw after draw: bets on every fault, and numbers that should be uniform.

A bet on a fault multiplies its wealth by (1 - s) + s * (law under the fault)/(law of an exact engine) at every draw.
Under an exact engine the mean of all wealth is a nonnegative martingale that begins at 1: an e-value, whenever one stops.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.uniformity import anderson_darling, kolmogorov_distance
from draftproof.audit.verdict import Finding

Vector = NDArray[np.float64]
STAKES = (0.25, 0.95)
"""How much of its wealth a bet puts on its fault: all but nothing where the fault is pure, a part where it is mixed."""
MOST_BETS = 96
"""Bets that the starting capital is divided among; those that are never made keep their share."""
LEAST = 1e-6
"""The least of that mass, for laws that nothing has rounded."""


@dataclass
class Bets:
    """Log wealth of each bet: (cause, which of its laws, stake)."""

    wealth: dict[tuple[str, int, float], float] = field(default_factory=lambda: defaultdict(float))
    n: int = 0

    def see(self, ratios: Iterable[tuple[str, float]], discount: float = 0.0) -> None:
        """One event: of each alternative its cause and its likelihood ratio. discount: in nats, for rounding.

        Alternatives that are not always there are told apart by their place within their cause."""
        places: dict[str, int] = defaultdict(int)
        for cause, ratio in ratios:
            for stake in STAKES:
                self.wealth[cause, places[cause], stake] += math.log1p(stake * (ratio - 1.0)) - discount
            places[cause] += 1
        self.n += 1

    @property
    def log_e(self) -> float:
        """Log of the mean wealth of all bets, those not made among them."""
        logs = np.zeros(MOST_BETS)
        logs[: len(self.wealth)] = list(self.wealth.values())
        top = float(logs.max())
        return top + math.log(float(np.exp(logs - top).mean()))

    def by_cause(self) -> dict[str, float]:
        """Cause -> log wealth of its best bet."""
        best: dict[str, float] = {}
        for (cause, _, _), wealth in self.wealth.items():
            best[cause] = max(best.get(cause, -math.inf), wealth)
        return best


@dataclass
class DrawStream:
    """Draws from laws known one by one. name: for the report. floor: mass that the null is given over the whole vocabulary, so
    that one token that rounding let through decides nothing."""

    name: str
    floor: float = LEAST
    bets: Bets = field(default_factory=Bets)
    numbers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def see(
        self,
        law: Vector,
        token: int,
        alternatives: Iterable[tuple[str, Vector]],
        uniforms: dict[str, float],
        discount: float = 0.0,
    ) -> None:
        """One draw. law: the null's, normalised; uniforms: order -> number of the draw under it."""
        chance = (1.0 - self.floor) * float(law[token]) + self.floor / len(law)
        ratios = (
            (cause, float(other[token]) / float(other.sum()) / chance) for cause, other in alternatives if other.sum() > 0
        )
        self.bets.see(ratios, discount)
        for order, number in uniforms.items():
            self.numbers[order].append(number)

    def findings(self) -> list[Finding]:
        """One for each order of the tokens, and one for the bets."""
        if self.bets.n == 0:
            return []
        found = [_uniform_finding(f"{self.name}, {order}", numbers, self.floor) for order, numbers in self.numbers.items()]
        return [*found, bet_finding(self.name, self.bets)]


def _uniform_finding(name: str, numbers: list[float], floor: float) -> Finding:
    statistic, p_value = anderson_darling(numbers, floor)
    distance, half = kolmogorov_distance(numbers)
    return Finding(
        name, statistic, p_value, None, distance, (max(distance - half, 0.0), min(distance + half, 1.0)), len(numbers)
    )


def bet_finding(name: str, bets: Bets) -> Finding:
    """statistic and effect: log e, as a whole and a draw."""
    log_e = bets.log_e
    mean = log_e / bets.n
    return Finding(f"{name}, bets on faults", log_e, None, math.exp(min(log_e, 700.0)), mean, (mean, mean), bets.n)
