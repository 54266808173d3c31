"""What a length rule is: it says how long this round's draft may be, before its tokens are known.

A rule that weighs draft laws against target laws stays exact only if whether a token is put before
it was decided before that token could matter. So a rule sees counts of past rounds and the laws
that tokens are about to be drawn from, never the tokens of the draft it decides on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

from draftproof.core.records import Array, Round
from draftproof.costs.round_costs import RoundCosts
from draftproof.drafters.protocol import Foreseen


class LengthRule(ABC):
    """One request's. Every method but `observe` and `go_on` leaves what `begin` decided as it
    is."""

    name: str

    @abstractmethod
    def begin(self, longest: int, foreseen: Foreseen | None) -> int:
        """A round begins: how many tokens seem worth drafting, at most `longest`; 0 when no draft
        is expected to pay.

        foreseen: what the drafter says of its coming draft before making it; None if nothing."""

    @abstractmethod
    def room(self, depth: int) -> int:
        """How many more tokens after `depth` drafted ones seem worth their cost, as far as past
        rounds and the laws shown so far tell. Asked before the drafter works for the next law; the
        same until `go_on` is told another law."""

    @abstractmethod
    def go_on(self, law: Array | None, depth: int) -> bool:
        """Whether to draw from `law` after `depth` drafted tokens; the drafter's work for it is
        done already."""

    @abstractmethod
    def expected(self, drafts: int) -> float:
        """Drafts expected to be accepted of the `drafts` of this round, from past rounds."""

    @abstractmethod
    def observe(self, record: Round) -> None:
        """A round that this rule began has ended."""

    def reckon_with(self, costs: RoundCosts) -> None:
        """From the next round on, where costs follow the clock; nothing to a rule that weighs
        none."""
        return None

    @abstractmethod
    def state_key(self) -> Hashable:
        """Equal keys mean equal decisions from now on."""
