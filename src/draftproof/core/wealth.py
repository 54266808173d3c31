"""A test that may be stopped at any time: bets against an exact engine, whose wealth stays small
while the engine is exact.

At every token each bet multiplies its wealth by (1 - stake) + stake * law(token) / target(token),
where `law` is what some fault would make of that token. Under the target's law this factor has
expectation at most 1, so the mean wealth is a nonnegative supermartingale that begins at 1: that it
ever reaches 1/level has at most the probability `level` (Ville's inequality), whenever and for
whatever reason one looks (Ramdas et al. 2210.01948).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

STAKES = (0.3, 0.95)
"""Shares of its wealth that a fault's two bets put on it: the one for a fault that most tokens
escape, the other for a pure one."""
FLOOR = 1e-6
"""Mass that the target's law is given over the whole vocabulary: a token it calls impossible is
much evidence, not all of it."""


MOST = 20.0
"""A single token multiplies no wealth by more, so that the mean of few ratios tells their
expectation."""


def ratio(law: Vector, target: Vector, token: int) -> float:
    """law(token) / target(token), at most `MOST`; under `target` its expectation is at most 1, the
    floor included."""
    kept = 1.0 - FLOOR
    return min(MOST, kept * float(law[token]) / (kept * float(target[token]) + FLOOR / len(target)))


@dataclass
class Wealth:
    """logs: log wealth of each bet, by (cause, place within the cause, stake). highest: of the mean
    wealth so far, in nats."""

    logs: dict[tuple[str, int, float], float] = field(default_factory=dict)
    highest: float = 0.0
    n: int = 0

    def see(
        self,
        ratios: Iterable[tuple[str, float]],
        discounts: Mapping[tuple[str, int], float] | None = None,
    ) -> None:
        """One token: (cause, ratio) of every fault. discounts: by how much a ratio's expectation
        may exceed 1 where the target's law is known up to rounding only."""
        places: dict[str, int] = {}
        for cause, value in ratios:
            place = places[cause] = places.get(cause, -1) + 1
            excess = discounts.get((cause, place), 0.0) if discounts else 0.0
            for stake in STAKES:
                key = (cause, place, stake)
                self.logs[key] = (
                    self.logs.get(key, 0.0)
                    + math.log1p(stake * (value - 1.0))
                    - math.log1p(stake * excess)
                )
        self.n += 1
        self.highest = max(self.highest, self.log_e)

    @property
    def log_e(self) -> float:
        """Log of the mean wealth."""
        if not self.logs:
            return 0.0
        logs = np.fromiter(self.logs.values(), dtype=float)
        top = float(logs.max())
        return top + math.log(float(np.exp(logs - top).mean()))

    def by_cause(self) -> dict[str, float]:
        """Cause -> log wealth of its best bet, the best first."""
        best: dict[str, float] = {}
        for (cause, _, _), wealth in self.logs.items():
            best[cause] = max(best.get(cause, -math.inf), wealth)
        return dict(sorted(best.items(), key=lambda pair: -pair[1]))


RENEWAL = 1000
"""Tokens after which bets get new capital."""


@dataclass
class LastingWealth(Wealth):
    """Bets that can go on for ever: bets on an exact engine lose, and what is lost would have to be
    won back before a fault that begins later shows. So half the capital is put in at the beginning,
    and 1/((k + 1)(k + 2)) of it after k renewals; what is not put in yet counts as it is, and the
    whole is a nonnegative supermartingale all the same."""

    def see(
        self,
        ratios: Iterable[tuple[str, float]],
        discounts: Mapping[tuple[str, int], float] | None = None,
    ) -> None:
        renewals, since = divmod(self.n, RENEWAL)
        if since == 0:
            share = -math.log((renewals + 1) * (renewals + 2))
            ratios = list(ratios)
            if not self.logs:
                places: dict[str, int] = {}
                for cause, _ in ratios:
                    places[cause] = places.get(cause, -1) + 1
                    self.logs |= {(cause, places[cause], stake): share for stake in STAKES}
            else:
                self.logs = {bet: float(np.logaddexp(log, share)) for bet, log in self.logs.items()}
        super().see(ratios, discounts)

    @property
    def log_e(self) -> float:
        """Log of the mean wealth and of what is kept back."""
        kept = -math.log((self.n - 1) // RENEWAL + 2) if self.n else 0.0
        return float(np.logaddexp(super().log_e, kept)) if self.logs else 0.0
