"""`ngram`: prompt lookup. The last few tokens occurred before; propose what followed them then.

From `prompt_lookup_max` down to `prompt_lookup_min` tokens, the longest suffix of the context with
an earlier occurrence wins; among its occurrences the most recent one. The copy runs on into the
draft itself, so a period goes on repeating; it ends at the draft length and before a token the
parameters forbid. With a `tree`, further matches (the next latest, then shorter suffixes) are
merged into a trie of that shape. (apoorvumang/prompt-lookup-decoding; vLLM's method of the same
name.) Drafts are fixed guesses: any choice is exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from copy import copy
from itertools import islice

from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Selection
from draftproof.core.tree import TreeShape
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.options import Option, count_from
from draftproof.drafters.protocol import (
    Drafter,
    DraftSession,
    Foreseeing,
    Foreseen,
    Memory,
    Renewable,
    Request,
)
from draftproof.drafters.registry import Config, Method, Parts, Proof, Tokens
from draftproof.errors import UsageError

INDEXED = 8
"""Longest n-gram that is entered into the index; a longer suffix is compared token by token where
its last INDEXED match."""

CHANCES = (0.33, 0.6, 0.8)
"""As for `suffix`, by the length of the match; longer ones are no surer than three tokens, as far
as is known."""

COMPARED = 64
"""How many such places are compared, the latest ones: neither the index nor a look-up grows with
the suffix's length."""


class NGram(Drafter):
    """prompt_lookup_max, prompt_lookup_min: longest and shortest suffix looked up, in tokens;
    vLLM's keys. tree: the shape that several matches are merged into, None for a chain of one."""

    name = "ngram"
    selections: frozenset[Selection] = frozenset({"fixed"})
    memories: tuple[Memory, ...] = ()

    def __init__(
        self,
        prompt_lookup_max: int = 3,
        prompt_lookup_min: int = 1,
        *,
        tree: TreeShape | None = None,
    ) -> None:
        if not 1 <= prompt_lookup_min <= prompt_lookup_max:
            raise UsageError(
                "prompt_lookup_min and prompt_lookup_max must satisfy 1 <= min <= max; "
                f"got min {prompt_lookup_min} and max {prompt_lookup_max}"
            )
        self.longest, self.shortest, self.tree = prompt_lookup_max, prompt_lookup_min, tree
        self.trees = tree is not None and not tree.is_chain

    def open(self, request: Request) -> NGramSession:
        return NGramSession(self, request)


class NGramSession(DraftSession, Foreseeing, Renewable):
    """An index of one request: for each n-gram, the positions after its occurrences. Grows with the
    context."""

    def __init__(self, drafter: NGram, request: Request) -> None:
        self._longest, self._shortest, self._laws = drafter.longest, drafter.shortest, request.laws
        self._tree = drafter.tree if drafter.trees else None
        self._after: dict[tuple[int, ...], list[int]] = {}
        self._indexed = 0

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        self._index(context)
        sources = self._lookup(context)
        if self._tree is None:
            for source in islice(sources, 1):
                self._copy(source, context, draft)
            return
        free = {parent: list(children) for parent, children in self._tree.children.items()}
        placed = {ROOT: ROOT}
        known: dict[tuple[int, int], int] = {}
        for source in islice(sources, 4 * len(self._tree)):
            self._merge(source, context, draft, free, placed, known)

    def foresee(self, context: Sequence[int]) -> Foreseen:
        """How long the match is that a draft after `context` would continue."""
        self._index(context)
        if self._shortest > INDEXED:
            return _foreseen(self._shortest if any(True for _ in self._lookup(context)) else 0)
        lengths = range(min(self._longest, INDEXED, len(context) - 1), self._shortest - 1, -1)
        return _foreseen(next((n for n in lengths if tuple(context[-n:]) in self._after), 0))

    def _copy(self, source: int, context: Sequence[int], draft: DraftBuilder) -> None:
        """A chain of what follows the match at `source`."""
        while draft.room > 0:
            token = self._token(source, context, draft.path())
            if self._laws.forbids(token, context, draft.path()):
                return
            draft.guess(token)
            source += 1

    def _merge(
        self,
        source: int,
        context: Sequence[int],
        draft: DraftBuilder,
        free: dict[int, list[int]],
        placed: dict[int, int],
        known: dict[tuple[int, int], int],
    ) -> None:
        """Walk down the trie along what follows the match at `source`, adding a node where the
        shape has one left.

        free: node of the shape -> its children not yet used. placed: node of the draft -> of the
        shape. known: (node, token) -> the child that proposes it."""
        node = ROOT
        while True:
            path = draft.path(node)
            token = self._token(source, context, path)
            if (node, token) not in known:
                left = free.get(placed[node], [])
                if (
                    not left
                    or draft.room_under(node) <= 0
                    or self._laws.forbids(token, context, path)
                ):
                    return
                known[node, token] = draft.guess(token, node)
                placed[known[node, token]] = left.pop(0)
            node = known[node, token]
            source += 1

    @staticmethod
    def _token(source: int, context: Sequence[int], path: tuple[int, ...]) -> int:
        return context[source] if source < len(context) else path[source - len(context)]

    def _lookup(self, context: Sequence[int]) -> Iterator[int]:
        """Where matches continue: the longest suffix first, of one length the latest occurrence
        first; each place once."""
        seen: set[int] = set()
        top = min(self._longest, INDEXED, len(context) - 1)
        for n in range(top, min(self._shortest, top) - 1, -1):
            places: Iterable[int] = reversed(self._after.get(tuple(context[-n:]), ()))
            if n == top == INDEXED < self._longest:
                places = self._longest_first(context, islice(places, COMPARED))
            for after in places:
                if after not in seen:
                    seen.add(after)
                    yield after

    def _longest_first(self, context: Sequence[int], places: Iterable[int]) -> list[int]:
        """Of places where the last INDEXED tokens match, latest first: those that match `shortest`,
        the longest match first."""
        lengths = {}
        for after in places:
            n, most = INDEXED, min(self._longest, after)
            while n < most and context[after - n - 1] == context[-n - 1]:
                n += 1
            lengths[after] = n
        return sorted(
            (after for after in lengths if lengths[after] >= self._shortest),
            key=lambda after: -lengths[after],
        )

    def _index(self, context: Sequence[int]) -> None:
        """Enter the n-grams that end before the last token, so that the suffix never matches
        itself."""
        for end in range(self._indexed + 1, len(context)):
            for n in range(min(self._shortest, INDEXED), min(self._longest, INDEXED, end) + 1):
                self._after.setdefault(tuple(context[end - n : end]), []).append(end)
        self._indexed = max(self._indexed, len(context) - 1)

    def state_key(self) -> Hashable:
        return ()

    def fork(self) -> NGramSession:
        other = copy(self)
        other._after = {ngram: list(places) for ngram, places in self._after.items()}
        return other

    def renew(self, request: Request, kept: int) -> None:
        """Go on with the index if all of it lies before `kept`, else begin it again."""
        self._laws = request.laws
        if self._indexed > kept:
            self.close()

    def close(self) -> None:
        self._after.clear()
        self._indexed = 0


def _foreseen(strength: int) -> Foreseen:
    return (
        Foreseen(strength, chance=CHANCES[min(strength, len(CHANCES)) - 1])
        if strength
        else Foreseen(0)
    )


def _make(config: Config, parts: Parts) -> NGram:
    """(longest, shortest) is (3, 1) unless given; one alone stands for both, as in vLLM."""
    longest, shortest = config.option("prompt_lookup_max"), config.option("prompt_lookup_min")
    if longest is None and shortest is None:
        longest, shortest = 3, 1
    return NGram(longest or shortest, shortest or longest, tree=config.shape)


def _looked_up(context: Tokens, path: Tokens, laws: LawPipeline) -> int | None:
    """For the proof, by brute force: the longest suffix of two or one first, its latest earlier
    occurrence, copied past the end."""
    for n in range(min(2, len(context) - 1), 0, -1):
        for end in range(len(context) - 1, n - 1, -1):
            if context[end - n : end] == context[-n:]:
                copied = (*context, *path)[end + len(path)]
                return None if laws.forbids(copied, context, path) else copied
    return None


LOOKUP = (
    Option("prompt_lookup_max", None, count_from(1), "longest suffix looked up, in tokens (3)"),
    Option("prompt_lookup_min", None, count_from(1), "shortest suffix looked up, in tokens (1)"),
)
METHODS = (
    Method(
        "ngram",
        "looks up the text's last tokens in what stands before",
        10,
        _make,
        options=LOOKUP,
        trees=True,
        replayable=True,
        vllm=True,
        examples={
            "ngram": NGram,
            "ngram, trie": lambda: NGram(tree=TreeShape.from_levels((2, 2, 1, 1))),
        },
        proof={"ngram": Proof(lambda: NGram(2, 1), guess=_looked_up)},
    ),
)
