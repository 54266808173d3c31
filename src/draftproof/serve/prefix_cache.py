"""Prompts and answers that were read, kept so that whoever begins in the same way reads only what
is new.

An entry is a target session that no text uses any more. A new text takes a copy of the longest one
in common with its prompt: copies share nothing, so neither can be told from one that was read
afresh. Where memory is full, the least recently used goes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from draftproof.decode.prefixes import Prefixes, TokenIds, forked
from draftproof.models.protocol import Session

LEAST_SHARED = 16
"""Tokens in common below which reading again is not worth a copy."""


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(place for place in range(length) if one[place] != other[place])


@dataclass
class _Entry:
    session: Session
    tokens: tuple[int, ...]
    size: int


class PrefixCache(Prefixes):
    """max_bytes: what all entries may take together; 0 keeps nothing. size_of: bytes of a session
    of so many tokens."""

    def __init__(self, max_bytes: int, size_of: Callable[[int], int]) -> None:
        self._max_bytes, self._size_of = max_bytes, size_of
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self.num_bytes = self.num_tokens = 0

    def saved(self, prompt: TokenIds, wanted: TokenIds) -> int:
        common = shared(prompt[:-1], wanted[:-1])
        return common if common >= LEAST_SHARED else 0

    def find(
        self,
        wanted: TokenIds,
        running: Iterable[tuple[TokenIds, Session]] = (),
        due: Mapping[TokenIds, int] = MappingProxyType({}),
    ) -> Session | None:
        """A copy that has read the longest known beginning of `wanted`, all but its last token at
        most."""
        begins = wanted[:-1]
        kept = [
            (shared(entry.tokens, begins), number, entry.session)
            for number, entry in self._entries.items()
        ]
        used = [(shared(tuple(session.tokens), begins), None, session) for _, session in running]
        length, number, session = max(
            [*kept, *used], key=lambda each: each[0], default=(0, None, None)
        )
        if session is None or length < LEAST_SHARED:
            return None
        if number is not None:
            self._entries.move_to_end(number)
        return forked(session, length)

    def put(self, prompt: TokenIds, session: Session) -> None:
        """Keep a session that its text has left, or close it."""
        tokens = tuple(session.tokens)
        size = self._size_of(len(tokens))
        if (
            len(tokens) < LEAST_SHARED
            or size > self._max_bytes
            or not session.can_fork
            or self._holds(tokens)
        ):
            session.close()
            return
        for number in [
            number
            for number, entry in self._entries.items()
            if tokens[: len(entry.tokens)] == entry.tokens
        ]:
            self._drop(number)
        self._entries[id(session)] = _Entry(session, tokens, size)
        self.num_bytes += size
        self.num_tokens += len(tokens)
        while self.num_bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def trim(self, due: Mapping[TokenIds, int]) -> None:
        """What is kept is bounded by its memory alone."""

    def clear(self) -> None:
        for number in list(self._entries):
            self._drop(number)

    def _holds(self, tokens: tuple[int, ...]) -> bool:
        """Whether an entry begins with all of `tokens`."""
        return any(entry.tokens[: len(tokens)] == tokens for entry in self._entries.values())

    def _drop(self, number: int) -> None:
        entry = self._entries.pop(number)
        self.num_bytes -= entry.size
        self.num_tokens -= len(entry.tokens)
        entry.session.close()
