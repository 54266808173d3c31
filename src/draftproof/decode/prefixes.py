"""Beginnings that texts have in common, read once: who goes on from whose session, and what is kept
for those to come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from draftproof.decode.failures import is_memory_error
from draftproof.models.protocol import Session

TokenIds = tuple[int, ...]


class Prefixes(ABC):
    """What an engine asks about prompts. A copy shares nothing with its source, so neither can be
    told from a session that read its tokens by itself."""

    @abstractmethod
    def saved(self, prompt: TokenIds, wanted: TokenIds) -> int:
        """How many tokens of the prompt `wanted` a text after `prompt` will have read for it; 0
        when not worth a copy."""

    @abstractmethod
    def find(
        self,
        wanted: TokenIds,
        running: Iterable[tuple[TokenIds, Session]],
        due: Mapping[TokenIds, int],
    ) -> Session | None:
        """A session for a text after `wanted` that has read some of it already, or None. running:
        the prompts and sessions of texts under way. due: prompts of the texts that wait behind this
        one, with their number."""

    @abstractmethod
    def put(self, prompt: TokenIds, session: Session) -> None:
        """Take over the session of a text that has ended."""

    @abstractmethod
    def trim(self, due: Mapping[TokenIds, int]) -> None:
        """Close what need not be kept for the texts that wait."""

    @abstractmethod
    def clear(self) -> None:
        """Close everything."""


class EqualPrompts(Prefixes):
    """Texts after the very same prompt read it once; a session is kept until the last of them has
    begun."""

    def __init__(self) -> None:
        self._kept: dict[TokenIds, Session] = {}

    def saved(self, prompt: TokenIds, wanted: TokenIds) -> int:
        return len(wanted) - 1 if prompt == wanted else 0

    def find(
        self,
        wanted: TokenIds,
        running: Iterable[tuple[TokenIds, Session]],
        due: Mapping[TokenIds, int],
    ) -> Session | None:
        if wanted in self._kept and not due.get(wanted):
            return self._kept.pop(wanted)
        length = len(wanted) - 1
        candidates = [
            session for prompt, session in (*self._kept.items(), *running) if prompt == wanted
        ]
        source = next(
            (session for session in candidates if session.can_fork and session.length >= length),
            None,
        )
        return None if source is None or length == 0 else forked(source, length)

    def put(self, prompt: TokenIds, session: Session) -> None:
        if prompt in self._kept or session.length < len(prompt) - 1:
            session.close()
        else:
            self._kept[prompt] = session

    def trim(self, due: Mapping[TokenIds, int]) -> None:
        for prompt in [prompt for prompt in self._kept if not due.get(prompt)]:
            self._kept.pop(prompt).close()

    def clear(self) -> None:
        self.trim({})


def forked(session: Session, length: int) -> Session | None:
    """A copy of a session's first `length` tokens; None where there is no memory for both, or its
    kind cannot be copied."""
    if not session.can_fork:
        return None
    try:
        return session.fork(length)
    except Exception as error:
        if not is_memory_error(error):
            raise
        return None
