"""How the tokens of one pass stand to each other: a chain, or a tree under what was read before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from draftproof.core.tree import node_depths
from draftproof.errors import UsageError


def is_chain(parents: Sequence[int] | None) -> bool:
    """Whether every token follows the one before it."""
    return parents is None or all(parent == node - 1 for node, parent in enumerate(parents))


def check_parents(parents: Sequence[int], num_tokens: int) -> None:
    """Raise UsageError unless there is one parent a token, each -1 or an earlier token."""
    if len(parents) != num_tokens:
        raise UsageError(
            f"parents has {len(parents)} entries for {num_tokens} tokens; it needs one "
            "for each token"
        )
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise UsageError(
                f"parents[{node}] is {parent}; a parent is -1 or an earlier token (below {node})"
            )


def ancestors(parents: Sequence[int]) -> torch.Tensor:
    """bool [n, n]: entry (i, j) is True where token j is token i or one of those above it."""
    seen = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    return seen


@dataclass(frozen=True)
class Layout:
    """start: tokens already read. count: tokens of the pass. parents: None for a chain, else as in
    `Step`. settled: how many of the pass's tokens are not expected to be rolled back (those before
    the first wanted row)."""

    start: int
    count: int
    parents: Sequence[int] | None = None
    settled: int = 0

    @classmethod
    def of(
        cls, start: int, count: int, parents: Sequence[int] | None, rows: Sequence[int] | None
    ) -> Layout:
        """The layout of a `Step` over `count` tokens; parents that form a chain become None."""
        settled = 0 if rows is None else min(rows, default=count)
        return cls(start, count, None if is_chain(parents) else parents, settled)

    @property
    def end(self) -> int:
        return self.start + self.count

    def positions(self) -> list[int]:
        """The absolute position of every token."""
        depths = range(self.count) if self.parents is None else node_depths(self.parents)
        return [self.start + depth for depth in depths]


def blank_mask(
    rows: int, width: int, fill: float, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """[rows, width] full of `fill`, a view whose rows start at multiples of 8, as the fused kernels
    of a GPU want them."""
    padded = -(-width // 8) * 8
    return torch.full((rows, padded), fill, dtype=dtype, device=device)[:, :width]
