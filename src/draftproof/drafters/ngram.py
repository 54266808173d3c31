"""`ngram`: prompt lookup. The last few tokens occurred before; propose what followed them then.

From `prompt_lookup_max` down to `prompt_lookup_min` tokens, the longest suffix of the context with an earlier occurrence wins;
among its occurrences the most recent one. The copy runs on into the draft itself, so a period goes on repeating; it ends at the
draft length and before a token the parameters forbid. (apoorvumang/prompt-lookup-decoding; vLLM's method of the same name.)
Drafts are fixed guesses: any choice is exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from draftproof.core.records import Observation, Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Request, Wants
from draftproof.errors import UsageError


class NGram:
    """prompt_lookup_max, prompt_lookup_min: longest and shortest suffix looked up, in tokens; vLLM's keys."""

    name = "ngram"
    selections: frozenset[Selection] = frozenset({"fixed"})
    trees = False
    wants = Wants()

    def __init__(self, prompt_lookup_max: int = 3, prompt_lookup_min: int = 1) -> None:
        if not 1 <= prompt_lookup_min <= prompt_lookup_max:
            raise UsageError(
                "prompt_lookup_min and prompt_lookup_max must satisfy 1 <= min <= max; "
                f"got min {prompt_lookup_min} and max {prompt_lookup_max}"
            )
        self.longest, self.shortest = prompt_lookup_max, prompt_lookup_min

    def open(self, request: Request) -> NGramSession:
        return NGramSession(self, request)


class NGramSession:
    """An index of one request: for each n-gram, the position after its latest occurrence. Grows with the context."""

    def __init__(self, drafter: NGram, request: Request) -> None:
        self._longest, self._shortest, self._laws = drafter.longest, drafter.shortest, request.laws
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        self._index(context)
        source = self._lookup(context)
        if source is None:
            return
        while draft.room > 0:
            path = draft.path()
            token = context[source] if source < len(context) else path[source - len(context)]
            if self._laws.forbids(token, context, path):
                return
            draft.guess(token)
            source += 1

    def _lookup(self, context: Sequence[int]) -> int | None:
        """Where the best match continues."""
        for n in range(min(self._longest, len(context) - 1), self._shortest - 1, -1):
            after = self._after.get(tuple(context[-n:]))
            if after is not None:
                return after
        return None

    def _index(self, context: Sequence[int]) -> None:
        """Enter the n-grams that end before the last token, so that the suffix never matches itself."""
        for end in range(self._indexed + 1, len(context)):
            for n in range(self._shortest, min(self._longest, end) + 1):
                self._after[tuple(context[end - n : end])] = end
        self._indexed = max(self._indexed, len(context) - 1)

    def observe(self, seen: Observation) -> None:
        """Nothing to learn: the context says it all."""

    def state_key(self) -> Hashable:
        return ()

    def close(self) -> None:
        self._after.clear()
        self._indexed = 0
