"""`fixed`: the draft length as configured, every round."""

from __future__ import annotations

from collections.abc import Hashable

from draftproof.core.records import Array, Round
from draftproof.decode.lengths.acceptance import AcceptanceByStrength
from draftproof.decode.lengths.protocol import LengthRule
from draftproof.drafters.protocol import Foreseen


class Fixed(LengthRule):
    """The same length every round. Acceptance is followed all the same, for whoever has to choose
    between drafters."""

    name = "fixed"

    def __init__(self) -> None:
        self.acceptance = AcceptanceByStrength()
        self._depth = 0
        self._foreseen: Foreseen | None = None

    def begin(self, longest: int, foreseen: Foreseen | None) -> int:
        self._foreseen = foreseen
        self._depth = self.length(longest)
        return self._depth

    def length(self, longest: int) -> int:
        """The length of the coming draft."""
        return longest

    def room(self, depth: int) -> int:
        return self._depth - depth

    def go_on(self, law: Array | None, depth: int) -> bool:
        return depth < self._depth

    def expected(self, drafts: int) -> float:
        return self.acceptance.of(self._foreseen).expected(drafts)

    def observe(self, record: Round) -> None:
        self.acceptance.observe(self._foreseen, record.num_accepted_tokens, record.reached)

    def state_key(self) -> Hashable:
        return self.acceptance.state_key()
