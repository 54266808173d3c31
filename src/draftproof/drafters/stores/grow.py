"""From counts of what followed to a draft: the likeliest paths first, as a chain or as a tree.

What is planned are constants given the context, so looking at all of them before choosing changes
no law.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeVar

from draftproof.core.records import ROOT

if TYPE_CHECKING:
    from draftproof.core.pipeline import LawPipeline
    from draftproof.drafters.builder import DraftBuilder

Place = TypeVar("Place")
Planned = list[tuple[int, int, float]]
"""A node each: its token, its parent among the nodes (ROOT: the context), and the share of its path
by the counts."""


def likeliest(
    start: Place,
    followers: Callable[[Place], Sequence[tuple[int, int, int, Place]]],
    *,
    nodes: int,
    depth: int,
    floor: float = 0.0,
    chain: bool = False,
) -> Planned:
    """Up to `nodes` nodes after `start`, at most `depth` levels, whose paths have a share of at
    least `floor`; always the likeliest that is left next. A path's share is the product of count /
    total along it.

    followers(place): (token, count, recency, the place after it); of equal counts the more recent
    goes first. chain: only the first of a node's followers is looked at."""
    planned: Planned = []
    heap: list[tuple[float, int, int, int, int, Place]] = []

    def offer(place: Place, share: float, parent: int, level: int) -> None:
        found = followers(place)
        if not found or level > depth:
            return
        total = sum(count for _, count, _, _ in found)
        for token, count, recency, after in [max(found, key=_rank)] if chain else found:
            if share * count >= floor * total:
                heappush(heap, (-share * count / total, -recency, token, parent, level, after))

    offer(start, 1.0, ROOT, 1)
    while heap and len(planned) < nodes:
        share, _, token, parent, level, after = heappop(heap)
        planned.append((token, parent, -share))
        if len(planned) < nodes:
            offer(after, -share, len(planned) - 1, level + 1)
    return planned


def place(planned: Planned, draft: DraftBuilder, context: Sequence[int], laws: LawPipeline) -> None:
    """Guess what was planned, as far as there is room, without what the parameters forbid and what
    hangs under it."""
    placed, asks = {ROOT: ROOT}, laws.can_forbid
    for node, (token, parent, _) in enumerate(planned):
        if parent not in placed or draft.room_under(placed[parent]) <= 0:
            continue
        known = token < laws.vocab_size  # a text can hold ids that the target has no row for
        if known and not (asks and laws.forbids(token, context, draft.path(placed[parent]))):
            placed[node] = draft.guess(token, placed[parent])


def _rank(follower: tuple[int, int, int, object]) -> tuple[int, int]:
    return follower[1], follower[2]
