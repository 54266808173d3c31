"""Stretch, reference: fixed candidates verified one after the other, down the tree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LawFunction = Callable[[tuple[int, ...]], np.ndarray]
BRANCHES = 2


def draft_tree(
    q_fn: LawFunction, prefix: tuple[int, ...], depth: int
) -> dict[tuple[int, ...], list[int]]:
    """Node (its drafted tokens) -> the two likeliest tokens there."""
    tree: dict[tuple[int, ...], list[int]] = {}
    level: list[tuple[int, ...]] = [()]
    for _ in range(depth):
        for node in level:
            tree[node] = [
                int(token) for token in np.argsort(-q_fn(prefix + node), kind="stable")[:BRANCHES]
            ]
        level = [(*node, token) for node in level for token in tree[node]]
    return tree


def tree_step(
    p_fn: LawFunction,
    q_fn: LawFunction,
    prefix: tuple[int, ...],
    depth: int,
    rng: np.random.Generator,
) -> list[int]:
    """One round: walk down while a candidate is accepted."""
    tree = draft_tree(q_fn, prefix, depth)
    path: tuple[int, ...] = ()
    while path in tree:
        left = p_fn(prefix + path).astype(float).copy()
        for token in tree[path]:
            if rng.random() * left.sum() < left[token]:
                path += (token,)
                break
            left[token] = 0.0  # the residual of a one-hot draft: everything but the draft
        else:
            return [*path, int(rng.choice(len(left), p=left / left.sum()))]
    law = p_fn(prefix + path)
    return [*path, int(rng.choice(len(law), p=law))]
