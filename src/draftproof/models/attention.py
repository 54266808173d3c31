"""Who sees whom in one pass: positions and masks of chains and trees."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from draftproof.errors import UsageError


def is_chain(parents: Sequence[int] | None) -> bool:
    """Whether every token follows the one before it."""
    return parents is None or all(parent == node - 1 for node, parent in enumerate(parents))


def check_parents(parents: Sequence[int], num_tokens: int) -> None:
    """Raise UsageError unless there is one parent a token, each -1 or an earlier token."""
    if len(parents) != num_tokens:
        raise UsageError(f"parents has {len(parents)} entries for {num_tokens} tokens; it needs one for each token")
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise UsageError(f"parents[{node}] is {parent}; a parent is -1 or an earlier token (below {node})")


def tree_depths(parents: Sequence[int]) -> list[int]:
    """Depth of every token below the context: 0 for those whose parent is -1. Its position is length + depth."""
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


def ancestors(parents: Sequence[int]) -> torch.Tensor:
    """bool [n, n]: entry (i, j) is True where token j is token i or one of those above it."""
    seen = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    return seen


def additive_mask(visible: torch.Tensor, length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """[1, 1, n, length + n]: 0 where a token may look, the lowest number of `dtype` elsewhere.

    visible: bool [n, n] among the new tokens; all of the first `length` tokens are visible to all. Additive, because both
    `eager` and `sdpa` attention of transformers take it, and so no layer converts it again.
    """
    num_tokens = visible.shape[0]
    mask = torch.zeros((num_tokens, length + num_tokens), dtype=dtype, device=device)
    mask[:, length:].masked_fill_(~visible.to(device), torch.finfo(dtype).min)
    return mask[None, None]
