"""Stretch: drafts that branch. Two candidates at every position, and still exactly the target's
law."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LawFunction = Callable[[tuple[int, ...]], np.ndarray]


def draft_tree(
    q_fn: LawFunction, prefix: tuple[int, ...], depth: int
) -> dict[tuple[int, ...], list[int]]:
    """The two likeliest tokens of the drafter at every node, likeliest first.

    A node is the tuple of drafted tokens that lead to it, () the root. The result maps every node
    with fewer than `depth` tokens to its two children's tokens: 2 children at the root, 4
    grandchildren, and so on."""
    raise NotImplementedError(
        "draft_tree is still to be written: ask q_fn at every node of the tree, level by level"
    )


def tree_step(
    p_fn: LawFunction,
    q_fn: LawFunction,
    prefix: tuple[int, ...],
    depth: int,
    rng: np.random.Generator,
) -> list[int]:
    """One round with the tree of `draft_tree`: the 1 to depth + 1 tokens it emits.

    The candidates are constants given the prefix: each was "drawn" from a one-hot law. So try them
    one after the other: accept the first with the target's probability of it; when it is rejected,
    what is left is the target without it, renormalised; try the second against that. A token that
    is no candidate, or one below the leaves, ends the round."""
    raise NotImplementedError(
        "tree_step is still to be written: what is the residual after rejecting a one-hot draft?"
    )
