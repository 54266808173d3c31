"""The shape of a draft tree: fixed before a token is drawn, so no drawn token can change what is
put before the verifier.

Nodes are numbered level by level; `parents` gives each node's parent, `ROOT` (-1) for the first
level. Written as the number of children on each level ("2,2,1": two children, each with two, each
of those with one) or as the parents themselves ("-1,-1,0": two children, the first of which has
one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from draftproof.core.records import ROOT
from draftproof.errors import UsageError

MAX_NODES = 256


@dataclass(frozen=True)
class TreeShape:
    """parents: one entry a node, each smaller than the node and never smaller than its left
    neighbour's."""

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.parents) <= MAX_NODES:
            raise UsageError(f"a tree has {len(self.parents)} nodes; allowed: 1 to {MAX_NODES}")
        smallest = ROOT
        for node, parent in enumerate(self.parents):
            if not smallest <= parent < node:
                raise UsageError(
                    f"tree parents {list(self.parents)} are not in level order: node "
                    f"{node} has parent {parent}; "
                    f"allowed there: {smallest} to {node - 1}"
                )
            smallest = parent

    @classmethod
    def from_levels(cls, widths: Sequence[int]) -> TreeShape:
        """Every node of level i has `widths[i]` children."""
        if not widths or min(widths) < 1:
            raise UsageError(
                f"tree levels {list(widths)}: every level has at least one child, and "
                "there is at least one level"
            )
        parents: list[int] = []
        level = [ROOT]
        for width in widths:
            begin = len(parents)
            if begin + len(level) * width > MAX_NODES:
                raise UsageError(f"tree levels {list(widths)} make more than {MAX_NODES} nodes")
            parents += [parent for parent in level for _ in range(width)]
            level = list(range(begin, len(parents)))
        return cls(tuple(parents))

    @classmethod
    def parse(cls, value: object) -> TreeShape:
        """A shape from "2,2,1", [2, 2, 1], or the parents of the nodes, which begin with -1.
        UsageError says what is wrong."""
        try:
            parts = value.split(",") if isinstance(value, str) else list(value)  # type: ignore[call-overload]
            numbers = tuple(int(part) for part in parts)
            if any(isinstance(part, (bool, float)) for part in parts):
                raise ValueError
        except (TypeError, ValueError):
            raise UsageError(
                f'tree is {value!r}; allowed: children per level, like "2,2,1", or '
                'parents, like "-1,-1,0"'
            ) from None
        return cls(numbers) if numbers and numbers[0] == ROOT else cls.from_levels(numbers)

    @classmethod
    def chain(cls, length: int) -> TreeShape:
        """One child on every level."""
        return cls(tuple(range(-1, length - 1)))

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """Node (or ROOT) -> its children."""
        found: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            found.setdefault(parent, []).append(node)
        return {parent: tuple(nodes) for parent, nodes in found.items()}

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """The nodes of each level, the first level first."""
        depths = node_depths(self.parents)
        return tuple(
            tuple(n for n, d in enumerate(depths) if d == level) for level in range(max(depths) + 1)
        )

    @property
    def depth(self) -> int:
        return len(self.levels)

    @property
    def is_chain(self) -> bool:
        return len(self) == self.depth


def node_depths(parents: Sequence[int]) -> list[int]:
    """The level of every node, 0 for those under `ROOT`; a parent comes before its children."""
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent == ROOT else depths[parent] + 1)
    return depths


def tree_text(parents: Sequence[int]) -> str:
    """`2,2,1` for a shape with as many children at every node of a level, else `of 9, 4 levels`."""
    shape = TreeShape(tuple(parents))
    levels = ((ROOT,), *shape.levels)
    widths = [{len(shape.children.get(node, ())) for node in level} for level in levels[:-1]]
    if all(len(width) == 1 for width in widths):
        return ",".join(str(width.pop()) for width in widths)
    return f"of {len(shape)}, {shape.depth} levels"
