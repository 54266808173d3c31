"""Running estimates of acceptance from one request's past rounds: by position, and by what a
drafter said of its draft.

Counts fade, so that a text that changes is followed, and are drawn towards a coarser estimate while
they are few: a position's rate towards that of all positions, that of a kind of draft towards what
its drafter knows of such drafts from elsewhere, or else towards that of all drafts. (Towards all
drafts alone, one weak match that failed would speak against strong ones, and beside another drafter
they would never be tried.) Only counts go in: the same rounds give the same estimates on every
machine."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable

from draftproof.drafters.protocol import Foreseen

PRIOR = 0.7
"""Acceptance taken for granted before anything is known: what decent drafters reach, so that a
first draft is tried."""
PRIOR_WEIGHT = 2.0
POSITION_WEIGHT = 4.0
FADE = 0.95
"""What a round's counts weigh after each further one: about the last twenty rounds count."""


CLASSES = (0, 1, 2, 3, 4, 6, 9)
"""Strengths from which on a new class begins: a few, so that each is met often enough to be
judged."""


def strength_class(strength: int) -> int:
    """The class of a draft's strength, itself a strength."""
    return CLASSES[bisect_right(CLASSES, strength) - 1]


class Rate:
    """One rate: faded counts of trials and successes."""

    def __init__(self) -> None:
        self.successes = self.trials = 0.0

    def add(self, successes: float, trials: float) -> None:
        self.successes += successes
        self.trials += trials

    def fade(self, factor: float) -> None:
        self.successes *= factor
        self.trials *= factor

    def towards(self, prior: float, weight: float) -> float:
        """The rate with `weight` trials at rate `prior` added."""
        return (self.successes + weight * prior) / (self.trials + weight)

    def key(self) -> Hashable:
        return (self.successes, self.trials)


class Acceptance:
    """Conditional acceptance by position, for a kind of draft within `coarser`, or for all drafts
    when that is None; `prior` is then taken for granted before anything is known."""

    def __init__(
        self, coarser: Acceptance | None = None, fade: float = FADE, prior: float = PRIOR
    ) -> None:
        self._coarser, self._fade, self._prior = coarser, fade, prior
        self._all = Rate()
        self._positions: list[Rate] = []

    @property
    def overall(self) -> float:
        """The chance that a draft that is reached is accepted, over all positions."""
        return self._all.towards(
            self._prior if self._coarser is None else self._coarser.overall, PRIOR_WEIGHT
        )

    def at(self, position: int) -> float:
        """The chance that draft `position` (from 0), once reached, is accepted."""
        prior = self.overall
        if self._coarser is not None:
            prior = self._all.towards(self._coarser.at(position), PRIOR_WEIGHT)
        if position >= len(self._positions):
            return prior
        return self._positions[position].towards(prior, POSITION_WEIGHT)

    def expected(self, drafts: int) -> float:
        """Accepted drafts of `drafts`: the sum of the chances that the first 1, 2, ... are all
        accepted."""
        total, survival = 0.0, 1.0
        for position in range(drafts):
            survival *= self.at(position)
            total += survival
        return total

    def observe(self, accepted: int, reached: int) -> None:
        """A round verified `reached` drafts in a row and accepted the first `accepted` of them."""
        for rate in (self._all, *self._positions):
            rate.fade(self._fade)
        self._all.add(accepted, reached)
        while len(self._positions) < reached:
            self._positions.append(Rate())
        for position in range(reached):
            self._positions[position].add(float(position < accepted), 1.0)

    def state_key(self) -> Hashable:
        return (self._all.key(), tuple(rate.key() for rate in self._positions))


class AcceptanceByStrength:
    """Acceptance of all drafts, and of those of one class of strengths within it."""

    def __init__(self) -> None:
        self._all = Acceptance()
        self._kinds: dict[int, Acceptance] = {}

    def of(self, foreseen: Foreseen | None) -> Acceptance:
        """The estimates for a draft that was foreseen so."""
        if foreseen is None:
            return self._all
        strength = strength_class(foreseen.strength)
        if strength not in self._kinds:
            chance = foreseen.chance
            kind = (
                Acceptance(self._all, fade=1.0)
                if chance is None
                else Acceptance(fade=1.0, prior=chance)
            )
            self._kinds[strength] = kind
        return self._kinds[strength]

    def observe(self, foreseen: Foreseen | None, accepted: int, reached: int) -> None:
        """See `Acceptance.observe`."""
        self._all.observe(accepted, reached)
        if foreseen is not None:
            self.of(foreseen).observe(accepted, reached)

    def state_key(self) -> Hashable:
        kinds = tuple(
            (strength, kind.state_key()) for strength, kind in sorted(self._kinds.items())
        )
        return (self._all.state_key(), kinds)
