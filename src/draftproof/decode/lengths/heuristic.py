"""`heuristic`: two tokens longer after a draft that was accepted whole, one shorter after any
other, never below one.

transformers' schedule of the same name (`num_assistant_tokens_schedule`), with the configured
length as the upper end."""

from __future__ import annotations

from collections.abc import Hashable

from draftproof.core.records import Round
from draftproof.core.tree import node_depths
from draftproof.decode.lengths.fixed import Fixed

FIRST = 5
"""The first draft's length."""


class Heuristic(Fixed):
    """A length moved by what happened to the last draft."""

    name = "heuristic"

    def __init__(self) -> None:
        super().__init__()
        self._next = FIRST

    def length(self, longest: int) -> int:
        return min(self._next, longest)

    def observe(self, record: Round) -> None:
        super().observe(record)
        if record.draft_tokens:
            whole = record.num_accepted_tokens == 1 + max(node_depths(record.draft_parents))
            self._next = self._next + 2 if whole else max(self._next - 1, 1)

    def state_key(self) -> Hashable:
        return (self._next, super().state_key())
