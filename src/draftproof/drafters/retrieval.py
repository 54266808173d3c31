"""`retrieval`: what followed the last tokens in a corpus of the user's, as a tree. (REST, He et al.
2311.08252.)

The longest suffix of the context (16 down to 2 tokens) that occurs in the corpus is found in a
suffix array; the continuations of its occurrences, of many an even sample, are merged into a trie
whose nodes are counted, and the nodes with the largest shares are drafted, best first. The tree is
verified like any other tree of fixed guesses, which is exact; the rule published with the method
draws once for every row and again after a miss, which is not.

The corpus is a file of `draftproof build-store --method retrieval`. Nothing of a request is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from draftproof.core.records import Selection
from draftproof.core.tree import MAX_NODES
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.options import STORE_HELP, Option, one_to, store_of, stored
from draftproof.drafters.protocol import Drafter, DraftSession, Memory, Request
from draftproof.drafters.registry import Config, Method, Parts
from draftproof.drafters.stores.grow import likeliest, place
from draftproof.drafters.stores.suffix_array import END, SuffixArray

MOST, LEAST = 16, 2
"""Tokens of the longest and the shortest match, as in REST."""
MOST_OCCURRENCES = 64


Continuations = tuple[list[list[int]], int]
"""A node of the trie: the continuations that begin with its path, and how long that is."""


class Retrieval(Drafter):
    """corpus: where matches are looked up. max_nodes: most nodes of a draft. trees: False drafts
    the likeliest chain, for targets that cannot read a tree."""

    name = "retrieval"
    selections: frozenset[Selection] = frozenset({"fixed"})
    memories: tuple[Memory, ...] = ()

    def __init__(self, corpus: SuffixArray, max_nodes: int = 32, *, trees: bool = True) -> None:
        self.corpus, self.max_nodes, self.trees = corpus, max_nodes, trees

    @property
    def known_texts(self) -> int:
        return self.corpus.digest

    def most_read(self, depth: int) -> int:
        """The most tokens of a draft of at most `depth` levels."""
        return self.max_nodes if self.trees else depth

    def open(self, request: Request) -> RetrievalSession:
        return RetrievalSession(self, request)


class RetrievalSession(DraftSession):
    """Remembers nothing: the context says where to look."""

    def __init__(self, drafter: Retrieval, request: Request) -> None:
        self._drafter, self._laws = drafter, request.laws

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        drafter, room = self._drafter, draft.room
        length, places = drafter.corpus.longest_match(context, MOST, LEAST)
        if not length:
            return
        sample = places[:: -(-len(places) // MOST_OCCURRENCES)]
        found = drafter.corpus.tokens(sample + length, min(room, drafter.max_nodes))
        most = drafter.max_nodes if drafter.trees else room
        place(
            likeliest((found, 0), _followers, nodes=most, depth=room, chain=not drafter.trees),
            draft,
            context,
            self._laws,
        )

    def state_key(self) -> Hashable:
        return ()

    def fork(self) -> RetrievalSession:
        return self  # it has no state


def _followers(node: Continuations) -> list[tuple[int, int, int, Continuations]]:
    """What comes next, and how often: the trie is made only where the draft goes."""
    found, depth = node
    after: dict[int, list[list[int]]] = {}
    for tokens in found:
        if depth < len(tokens) and tokens[depth] != END:
            after.setdefault(tokens[depth], []).append(tokens)
    return [(token, len(same), 0, (same, depth + 1)) for token, same in after.items()]


def _make(config: Config, parts: Parts) -> Retrieval:
    corpus = SuffixArray(stored(config, parts))
    return Retrieval(
        corpus, config.option("retrieval_max_nodes"), trees=parts.target.supports_trees
    )


METHODS = (
    Method(
        "retrieval",
        "a tree of what followed the text's last tokens in a corpus of yours",
        10,
        _make,
        options=(
            Option("store", None, store_of("retrieval"), STORE_HELP, vllm=False),
            Option(
                "retrieval_max_nodes",
                32,
                one_to(MAX_NODES),
                "most nodes of a draft (32)",
                vllm=False,
            ),
        ),
        requires=("store",),
        replayable=True,
    ),
)
