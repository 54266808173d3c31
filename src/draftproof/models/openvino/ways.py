"""What one pass reads: sequences side by side, a chain as one, a tree as its ways down from the
root.

Ways share the pages of what they have in common as far as pages are full; on the page where they
part each reads the common tokens again. A node's row is therefore what it would be in a chain, to
the last bit: its keys lie in the same places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.models.layout import is_chain
from draftproof.models.openvino.paged import PAGE
from draftproof.models.protocol import Step


@dataclass(frozen=True)
class ReadSequence:
    """nodes: which of the step's tokens are read, in order. past: tokens of its pages that are read
    already."""

    nodes: Sequence[int]
    past: int
    pages: Sequence[int]


def sequences_of(step: Step, cache: Any, least: int) -> list[ReadSequence]:
    """The sequences that read `step`; every node is in at least one of them, and each has room for
    `least` tokens."""
    count, start = len(step.tokens), cache.length
    if is_chain(step.parents):
        return [ReadSequence(range(count), start, cache.reserve(start, start + max(count, least)))]
    assert step.parents is not None
    found: list[ReadSequence] = []
    read: list[tuple[list[int], list[int]]] = []
    for way in ways_down(step.parents):
        common, other = max(
            ((_common(way, earlier), pages) for earlier, pages in read),
            default=(0, cache.pages),
            key=_first,
        )
        full = (start + common) // PAGE * PAGE
        begin, base = (full, other) if full > start else (start, cache.pages)
        unread = way[begin - start :]
        pages = cache.branch(base, begin, begin + max(len(unread), least), way)
        read.append((way, pages))
        found.append(ReadSequence(unread, begin, pages))
    return found


def ways_down(parents: Sequence[int]) -> list[list[int]]:
    """For every leaf the nodes above it and itself, root first, in the order of the leaves."""
    inner = set(parents)
    found = []
    for leaf in range(len(parents)):
        if leaf in inner:
            continue
        way, node = [], leaf
        while node >= 0:
            way.append(node)
            node = parents[node]
        found.append(way[::-1])
    return found


def _first(pair: tuple[int, list[int]]) -> int:
    return pair[0]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many nodes two ways begin with in common."""
    return next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
