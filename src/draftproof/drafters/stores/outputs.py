"""Outputs of finished requests, kept for later ones: only where that was asked for, and never more
than its caps.

The store is a few automata, filled one after another; when all are full the oldest is dropped
whole. So what is oldest goes first, a fraction of the store at a time, and nothing is ever taken
out of an automaton.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from threading import Lock

from draftproof.drafters.stores.automaton import BREAK, SuffixAutomaton
from draftproof.drafters.stores.memory import Memory

PARTS = 4


class SharedOutputs(Memory):
    """At most `max_requests` outputs and `max_tokens` tokens. depth: as in `SuffixAutomaton`.
    `version` counts what was added. With several threads, read under `lock`."""

    def __init__(self, depth: int, max_requests: int, max_tokens: int) -> None:
        self.version = 0
        self.lock = Lock()
        self._depth = depth
        self._requests_each = max(1, max_requests // PARTS)
        self._tokens_each = max(1, max_tokens // PARTS)
        self._num_parts = min(PARTS, max_requests)
        self._parts: deque[SuffixAutomaton] = deque()
        self._sizes: deque[int] = deque()

    @property
    def num_requests(self) -> int:
        return sum(self._sizes)

    @property
    def num_tokens(self) -> int:
        """Tokens kept, the marks between outputs included."""
        return sum(len(part.tokens) for part in self._parts)

    def add(self, output: Sequence[int]) -> None:
        """Keep one output; of one longer than a part may be, its end."""
        kept = output[-(self._tokens_each - 1) :] if self._tokens_each > 1 else ()
        if not kept:
            return
        with self.lock:
            if not self._parts or self._full(len(kept) + 1):
                self._parts.append(SuffixAutomaton(self._depth))
                self._sizes.append(0)
            if len(self._parts) > self._num_parts:
                self._parts.popleft()
                self._sizes.popleft()
            self._parts[-1].extend((*kept, BREAK))
            self._sizes[-1] += 1
            self.version += 1

    def parts(self) -> Iterator[SuffixAutomaton]:
        """The automata, the newest first."""
        yield from reversed(tuple(self._parts))

    def _full(self, more: int) -> bool:
        return (
            self._sizes[-1] >= self._requests_each
            or len(self._parts[-1].tokens) + more > self._tokens_each
        )
