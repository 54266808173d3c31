"""`survival`: draft on while the chance that the next draft is still reached and accepted is worth
its price.

The round's rate, tokens per time, is highest when draft k + 1 is made exactly if A_{k+1} >= lambda
(t_draft + dt_verify): A_{k+1} is the chance that the first k + 1 drafts are all accepted, lambda
the long-run tokens per time (a stopping problem with renewal reward; SpecDec++ 2405.19715 states
the threshold on A). A is a product of conditional chances. Until the draft law at a position is
known, its chance is what past rounds say of that position; then it is what they say of laws as sure
as this one.

That is the rule where every token costs the same. Measured verification has steps, so what all
further drafts bring and cost decides, the next one being the first of them. Two prices: before the
drafter works for a law, that work and the verification; once the law is there, the verification
alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable
from math import prod

from draftproof.core.records import Array, Round
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.lengths.acceptance import FADE, AcceptanceByStrength, Rate
from draftproof.decode.lengths.protocol import LengthRule
from draftproof.drafters.protocol import Foreseen

EDGES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
"""Where sureness, the law's largest probability, is cut into classes."""
CLASS_WEIGHT = 2.0


def largest_probability(law: Array) -> float:
    """How sure a law [vocab] is."""
    return float(law.max())


class Survival(LengthRule):
    """costs: of this drafter on this machine. sureness: of a law, a number between 0 and 1."""

    name = "survival"

    def __init__(
        self, costs: RoundCosts, sureness: Callable[[Array], float] = largest_probability
    ) -> None:
        self.costs = costs
        self._sureness = sureness
        self.acceptance = AcceptanceByStrength()
        self._classes = [Rate() for _ in range(len(EDGES) + 1)]
        self._begin(0, None)

    def _begin(self, longest: int, foreseen: Foreseen | None) -> None:
        self._longest, self._foreseen, self._rate = longest, foreseen, 1.0
        self._seen: list[float] = []  # how sure the laws of this round were, by depth
        self._chances: list[float] = []

    def begin(self, longest: int, foreseen: Foreseen | None) -> int:
        self._begin(longest, foreseen)
        self._rate = self._best_rate()
        planned = self.room(0)
        if planned and 1.0 + self.expected(planned) <= self.costs.round(planned):
            return 0
        return longest if planned else 0

    def _best_rate(self) -> float:
        """lambda: tokens per time of the best draft length, and no less than plain decoding's."""
        best = survival = tokens = 1.0
        for drafts in range(1, self._longest + 1):
            survival *= self._chance(drafts - 1)
            tokens += survival
            best = max(best, tokens / self.costs.round(drafts))
        return best

    def room(self, depth: int) -> int:
        return self._best_end(depth, self._survival(depth))[0] - depth

    def _survival(self, depth: int) -> float:
        """The chance that the first `depth` drafts of this round are all accepted."""
        return (
            prod(self._chances[:depth])
            if depth <= len(self._chances)
            else prod(map(self._chance, range(depth)))
        )

    def _best_end(self, depth: int, survival: float) -> tuple[int, float]:
        """Where to stop after `depth` drafts that survive with this chance, and what going on until
        there is worth. Looking past the next draft matters where verification has steps: a dear one
        may stand before cheap ones."""
        end, best, worth = depth, 0.0, 0.0
        for further in range(depth, self._longest):
            survival *= self._chance(further)
            worth += survival - self._rate * (self.costs.draft + self.costs.more(further))
            if worth > best + 1e-12:
                end, best = further + 1, worth
        return end, best

    def go_on(self, law: Array | None, depth: int) -> bool:
        if depth >= self._longest:
            return False
        if law is None:
            return self.room(depth) > 0
        if depth == len(self._seen):
            self._seen.append(self._sureness(law))
            self._chances.append(
                self._classes[self._class(depth)].towards(self._class_prior(depth), CLASS_WEIGHT)
            )
        survival = self._survival(depth + 1)
        _, after = self._best_end(depth + 1, survival)
        return survival + after >= self._rate * self.costs.more(depth)

    def _chance(self, position: int) -> float:
        return self.acceptance.of(self._foreseen).at(position)

    def _class(self, depth: int) -> int:
        return bisect_right(EDGES, self._seen[depth])

    def _class_prior(self, depth: int) -> float:
        """Half what past rounds say of the position, half the law's own word."""
        return (self._chance(depth) + self._seen[depth]) / 2

    def expected(self, drafts: int) -> float:
        return self.acceptance.of(self._foreseen).expected(drafts)

    def reckon_with(self, costs: RoundCosts) -> None:
        self.costs = costs

    def observe(self, record: Round) -> None:
        self.acceptance.observe(self._foreseen, record.num_accepted_tokens, record.reached)
        for rate in self._classes:
            rate.fade(FADE)
        for depth in range(min(record.reached, len(self._seen))):
            self._classes[self._class(depth)].add(float(depth < record.num_accepted_tokens), 1.0)

    def state_key(self) -> Hashable:
        return (self.acceptance.state_key(), tuple(rate.key() for rate in self._classes))
