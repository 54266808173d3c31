"""`ngram_cache`: tables of what followed each n-gram, in this text and in a corpus; token by token
until they are silent.

The n-grams of the last 4 to 1 tokens are looked up, the longest first: in the request's own counts
under lax thresholds, else in the corpus's under strict ones, else the last two tokens in the
corpus's under its own. A token passes when its n-gram was followed often enough, and by it in a
large enough share. Of several that pass, the one with the largest count times (100 times its count
after the same two tokens in the corpus, at least 1) is guessed, and the lookup goes on from there.
(llama.cpp's n-gram cache, its thresholds; there the weighted choice comes before the thresholds.)

The corpus's tables are optional and come from a file of `draftproof build-store`; no request ever
changes them. Drafts are fixed guesses: any choice is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy

from draftproof.core.records import Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.options import STORE_HELP, Option, store_of, stored
from draftproof.drafters.protocol import Drafter, DraftSession, Memory, Request
from draftproof.drafters.registry import Config, Method, Parts
from draftproof.drafters.stores.ngram_tables import LONGEST, Counts, GrowingTable, StoredTable

LAX = ((2, 66), (2, 50), (1, 50), (1, 50))
STRICT = ((4, 75), (3, 66), (2, 66), (2, 66))
"""For n-grams of 1, 2, 3, 4 tokens: how often something must have followed, and the least share of
a token, in percent."""
LAST_RESORT = (2, 50)
"""The same for the corpus's two-token n-grams when nothing else answers."""

Lookup = Callable[[tuple[int, ...]], Counts]


class NGramCache(Drafter):
    """stored: the corpus's tables, None for the request's own text alone."""

    name = "ngram_cache"
    selections: frozenset[Selection] = frozenset({"fixed"})
    memories: tuple[Memory, ...] = ()

    def __init__(self, stored: StoredTable | None = None) -> None:
        self.stored = stored

    @property
    def known_texts(self) -> int:
        return 0 if self.stored is None else self.stored.digest

    def open(self, request: Request) -> NGramCacheSession:
        return NGramCacheSession(self, request)


class NGramCacheSession(DraftSession):
    """The counts of one request."""

    def __init__(self, drafter: NGramCache, request: Request) -> None:
        self._stored, self._laws = drafter.stored, request.laws
        self._own = GrowingTable()

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        self._count(context)
        recent = tuple(context[-LONGEST:])
        while draft.room > 0:
            token = self._next(recent)
            if token is None or self._laws.forbids(token, context, draft.path()):
                return
            draft.guess(token)
            recent = (*recent, token)[-LONGEST:]

    def _next(self, recent: tuple[int, ...]) -> int | None:
        stored: Lookup = self._stored.counts if self._stored is not None else _nothing
        pair = stored(recent[-2:]) if len(recent) >= 2 else {}
        found = _longest_first(recent, self._own.counts, LAX, pair)
        if found is None:
            found = _longest_first(recent, stored, STRICT, pair)
        return _passing(pair, LAST_RESORT, {}) if found is None else found

    def _count(self, context: Sequence[int]) -> None:
        """Count what is new; all of it when the context does not go on from what was counted."""
        known = self._own.tokens
        if len(known) > len(context) or list(context[: len(known)]) != known:
            self._own = GrowingTable()
        self._own.extend(context[len(self._own.tokens) :])

    def state_key(self) -> Hashable:
        return ()

    def fork(self) -> NGramCacheSession:
        other = copy(self)
        other._own = self._own.fork()
        return other

    def close(self) -> None:
        self._own = GrowingTable()


def _nothing(ngram: tuple[int, ...]) -> Counts:
    return {}


def _longest_first(
    recent: tuple[int, ...], lookup: Lookup, thresholds: Sequence[tuple[int, int]], pair: Counts
) -> int | None:
    for n in range(len(recent), 0, -1):
        token = _passing(lookup(recent[-n:]), thresholds[n - 1], pair)
        if token is not None:
            return token
    return None


def _passing(counts: Counts, threshold: tuple[int, int], pair: Counts) -> int | None:
    """The token to guess after an n-gram with these counts; of equals the last one in their
    order."""
    least, percent = threshold
    total = sum(counts.values())
    if total < least:
        return None
    best, weight = None, 0
    for token, count in counts.items():
        if 100 * count >= percent * total and count * max(100 * pair.get(token, 0), 1) >= weight:
            best, weight = token, count * max(100 * pair.get(token, 0), 1)
    return best


def _make(config: Config, parts: Parts) -> NGramCache:
    return NGramCache(
        None if config.option("store") is None else StoredTable(stored(config, parts))
    )


METHODS = (
    Method(
        "ngram_cache",
        "tables of what followed each n-gram, here and in a corpus",
        8,
        _make,
        options=(
            Option("store", None, store_of("ngram_cache"), f"{STORE_HELP}; optional", vllm=False),
        ),
        replayable=True,
        examples={"ngram_cache": NGramCache},
    ),
)
