"""Into which passes one step is cut: long prompts, trees under long prompts, and models that go on
token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from draftproof.models.layout import Layout
from draftproof.models.protocol import Step

CHUNK = 512
"""Tokens of a long prompt read in one pass."""

WIDE_TREE = 64
"""A tree pass of more tokens is cut where it begins to branch."""

SETTLED = 16
"""With states to restore, as many tokens before the first wanted row get a pass of their own: no
rollback rereads them."""


class Continuing(Enum):
    """How a model goes on from what it has read: like attention in any number of tokens; like
    recurrent layers, the same but with copies of states between passes only; or one token a pass,
    because its layers ignore their state in longer ones."""

    FREELY = "freely"
    WITH_STATES = "with states"
    TOKEN_BY_TOKEN = "token by token"  # noqa: S105


@dataclass(frozen=True)
class Piece:
    """Tokens `first` to `last` of a step; parents relative to the piece, None for a chain."""

    first: int
    last: int
    parents: tuple[int, ...] | None = None


def pieces(layout: Layout, continuing: Continuing) -> list[Piece]:
    """The passes, in order, that read what `layout` describes."""
    if layout.parents is None:
        return _chain(layout.start, 0, layout.count, layout.settled, continuing)
    if layout.count <= WIDE_TREE:
        return [Piece(0, layout.count, tuple(layout.parents))]
    trunk = _trunk(layout.parents)
    tree = Piece(trunk, layout.count, tuple(parent - trunk for parent in layout.parents[trunk:]))
    return [*_chain(layout.start, 0, trunk, trunk, continuing), tree]


def _trunk(parents: Sequence[int]) -> int:
    """How many of the first tokens are a chain that all the others hang under."""
    length = next((node for node, parent in enumerate(parents) if parent != node - 1), len(parents))
    lowest = min(parents[length:], default=length - 1)
    return max(0, min(length, lowest + 1))


def _chain(start: int, first: int, last: int, settled: int, continuing: Continuing) -> list[Piece]:
    if last <= first:
        return []
    if continuing is Continuing.FREELY:
        return _cut(first, last, CHUNK)
    if continuing is Continuing.WITH_STATES:
        if settled >= SETTLED and last - settled > 1:
            return _cut(first, settled, CHUNK) + _cut(settled, last, CHUNK)
        return _cut(first, last, CHUNK)
    if start > 0:
        return _cut(first, last, 1)
    whole = settled if first < settled < last else last
    return [Piece(first, whole), *_cut(whole, last, 1)]


def _cut(first: int, last: int, size: int) -> list[Piece]:
    return [Piece(place, min(last, place + size)) for place in range(first, last, size)]


def step_of(step: Step, piece: Piece) -> Step:
    """The part of `step` that `piece` reads, with the rows wanted of it in ascending order."""
    wanted = range(len(step.tokens)) if step.rows is None else step.rows
    rows = sorted({row - piece.first for row in wanted if piece.first <= row < piece.last})
    return replace(
        step, tokens=step.tokens[piece.first : piece.last], parents=piece.parents, rows=rows
    )
