"""`recycling`: Token Recycling. The target's own best ids after each token, kept in a table and
drafted as a tree.

Every row of a verifying pass shows what the target thinks may follow its token, rejected drafts
included; the table keeps the latest such list for each token. A draft starts at the pending token
and hangs each token's list under it, in a fixed shape that gives early ranks more room. (Luo et al.
2408.08696; there one table serves all requests, here each begins with an empty one.)

The lists are constants given the past, so the tree is one of fixed guesses: exact under `match`, at
any temperature. Nothing is read off the prompt, whose rows are not computed. The table has one list
for each different token met in a verifying pass."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from functools import lru_cache
from heapq import heappop, heappush

from draftproof.core.records import ROOT, Observation, Selection
from draftproof.core.tree import MAX_NODES, TreeShape
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.options import Option, one_to
from draftproof.drafters.protocol import Drafter, DraftSession, Memory, Request, Wants
from draftproof.drafters.registry import Config, Method, Parts, Proof

RANKS = (0.50, 0.15, 0.08, 0.05, 0.035, 0.025, 0.02, 0.015)
"""How likely the target's best ids of each rank are thought to be right, for choosing a shape; only
speed depends on it."""
TOP_IDS = len(RANKS)


class Recycling(Drafter):
    """tree: the shape of a draft, children in order of rank; by default the `max_nodes` likeliest
    places under RANKS. trees: False drafts the chain of first ranks, for targets that cannot read a
    tree."""

    name = "recycling"
    selections: frozenset[Selection] = frozenset({"fixed"})
    memories: tuple[Memory, ...] = ()
    tree: TreeShape

    def __init__(
        self,
        max_nodes: int = 24,
        depth: int = 6,
        *,
        tree: TreeShape | None = None,
        trees: bool = True,
    ) -> None:
        self.tree = (
            (tree or likely_shape(max_nodes, depth))
            if trees
            else TreeShape.chain(depth if tree is None else tree.depth)
        )
        self.trees = not self.tree.is_chain
        self.wants = Wants(top_ids=max(len(children) for children in self.tree.children.values()))

    def open(self, request: Request) -> RecyclingSession:
        return RecyclingSession(self, request)


class RecyclingSession(DraftSession):
    """One request's table: token -> the target's best ids after it, the best first."""

    def __init__(self, drafter: Recycling, request: Request) -> None:
        self._children, self._laws = drafter.tree.children, request.laws
        self._table: dict[int, tuple[int, ...]] = {}

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        placed = {ROOT: ROOT}
        for parent, children in self._children.items():
            if parent not in placed or draft.room_under(placed[parent]) <= 0:
                continue
            node = placed[parent]
            path = draft.path(node)
            listed = self._table.get(path[-1] if path else context[-1], ())
            allowed = (token for token in listed if not self._laws.forbids(token, context, path))
            for child, token in zip(children, allowed, strict=False):
                if draft.room_under(node) <= 0:
                    return
                placed[child] = draft.guess(token, node)

    def observe(self, seen: Observation) -> None:
        """Keep what every row of the pass said."""
        if seen.top_ids is not None:
            for token, best in zip(seen.row_tokens, seen.top_ids.tolist(), strict=True):
                self._table[int(token)] = tuple(best)

    def state_key(self) -> Hashable:
        return tuple(sorted(self._table.items()))

    def fork(self) -> RecyclingSession:
        other = copy(self)
        other._table = dict(self._table)
        return other

    def close(self) -> None:
        self._table.clear()


@lru_cache
def likely_shape(max_nodes: int, depth: int) -> TreeShape:
    """The `max_nodes` places of a tree at most `depth` deep whose product of RANKS is largest, in
    level order."""
    heap: list[tuple[float, tuple[int, ...]]] = [(-RANKS[0], (0,))]
    chosen: list[tuple[int, ...]] = []
    while heap and len(chosen) < max_nodes:
        share, ranks = heappop(heap)
        chosen.append(ranks)
        if ranks[-1] + 1 < TOP_IDS:
            heappush(
                heap,
                (share / RANKS[ranks[-1]] * RANKS[ranks[-1] + 1], (*ranks[:-1], ranks[-1] + 1)),
            )
        if len(ranks) < depth:
            heappush(heap, (share * RANKS[0], (*ranks, 0)))
    chosen.sort(key=lambda ranks: (len(ranks), ranks))
    number = {(): ROOT} | {ranks: i for i, ranks in enumerate(chosen)}
    return TreeShape(tuple(number[ranks[:-1]] for ranks in chosen))


def _make(config: Config, parts: Parts) -> Recycling:
    nodes, depth = config.option("recycling_max_nodes"), config.num_speculative_tokens
    return Recycling(nodes, depth, tree=config.shape, trees=parts.target.supports_trees)


METHODS = (
    Method(
        "recycling",
        "a tree of what the target last thought likely after each token",
        6,
        _make,
        options=(
            Option(
                "recycling_max_nodes",
                24,
                one_to(MAX_NODES),
                "most nodes of a draft (24)",
                vllm=False,
            ),
        ),
        trees=True,
        examples={
            "recycling": lambda: Recycling(tree=TreeShape.from_levels((2, 2, 1, 1))),
            "recycling, own shape": lambda: Recycling(14, 4),
            "recycling, chain": lambda: Recycling(depth=4, trees=False),
        },
        proof={"recycling": Proof(lambda: Recycling(4, 2))},
    ),
)
