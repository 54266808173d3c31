"""The best shape of a draft tree for a measured acceptance vector and measured costs: Sequoia's
dynamic programme (2402.12374).

a_b is the chance that the b-th child of a node is the one accepted, the same at every node. A
tree's expected tokens are then 1 + the sum over its nodes of the product of a along the path, so
children are added in place order and
T(m, l, b) = max over y of T(y, l, b - 1) + a_b max over b' of T(m - y, l - 1, b'), T(1, l, 0) = 1,
for a tree of m nodes, the root (which is the pending token) included, at most l levels below the
root and b children there. Where a_b depends on how many siblings there are, T is looked for once
for each number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from draftproof.core.records import ROOT
from draftproof.core.tree import MAX_NODES, TreeShape
from draftproof.errors import UsageError


@dataclass(frozen=True)
class BestTree:
    """shape: None when drafting does not pay. expected_tokens: of one round. seconds_per_token: by
    the costs given."""

    shape: TreeShape | None
    expected_tokens: float
    seconds_per_token: float


Acceptance = Sequence[float] | Sequence[Sequence[float]]
"""a_1, a_2, ... by place; or such a vector for 1, 2, ... siblings, the k-th of k chances."""


def expected_tokens_of_shape(acceptance: Acceptance, shape: TreeShape) -> float:
    """1 + the sum over nodes of the chance that the node is reached; children beyond the vector are
    never accepted."""
    rows = _by_count(acceptance)
    reached = {ROOT: 1.0}
    for parent, children in shape.children.items():
        row = rows[min(len(children), len(rows)) - 1]
        for place, child in enumerate(children):
            reached[child] = reached[parent] * (row[place] if place < len(row) else 0.0)
    return sum(reached.values())


def best_tree(
    acceptance: Acceptance,
    draft_seconds: float,
    verify_seconds: Callable[[int], float],
    *,
    max_nodes: int = 64,
    max_depth: int = 8,
) -> BestTree:
    """The shape with the least (depth * draft_seconds + verify_seconds(nodes + 1)) / expected
    tokens.

    acceptance: chances in [0, 1] that sum to at most 1, by place or for each number of siblings.
    draft_seconds: of one drafting pass (one a level). verify_seconds: tokens in a target pass ->
    its seconds. max_nodes, max_depth: of drafted tokens. UsageError for bad values."""
    rows = _by_count(acceptance)
    _check(rows, draft_seconds, max_nodes, max_depth)
    value, split = _tables(rows)
    best = BestTree(None, 1.0, verify_seconds(1))
    for depth in range(1, max_depth + 1):
        for nodes in range(depth + 1, max_nodes + 2):
            tokens, width = value(nodes, depth)
            rate = (
                (depth * draft_seconds + verify_seconds(nodes)) / tokens if tokens > 0 else np.inf
            )
            if rate < best.seconds_per_token * (1 - 1e-12):
                best = BestTree(_shape(nodes, depth, width, split, value), tokens, rate)
    return best


Value = Callable[[int, int], tuple[float, int]]
Split = Callable[[int, int, int, int], tuple[float, int]]
Rows = tuple[tuple[float, ...], ...]


def _by_count(acceptance: Acceptance) -> Rows:
    """The chances of k siblings, for k = 1, 2, ...; the same by place unless they were given so."""
    if not len(acceptance) or isinstance(acceptance[0], Sequence):
        return tuple(tuple(float(a) for a in row) for row in acceptance)  # type: ignore[union-attr]
    return tuple(tuple(float(a) for a in acceptance[:k]) for k in range(1, len(acceptance) + 1))  # type: ignore[arg-type]


def _tables(rows: Rows) -> tuple[Value, Split]:
    """value(m, l): (most expected tokens of m nodes in l levels, children of its root). split(m, l,
    b, k): (the same with the first b of k children of the root, nodes left to the first b - 1 of
    them and the root). -inf where no such tree exists."""

    @cache
    def split(m: int, depth: int, b: int, k: int) -> tuple[float, int]:
        if b == 0:
            return (1.0, 1) if m == 1 else (-np.inf, 0)
        if m <= b or depth == 0:
            return -np.inf, 0
        chance = rows[k - 1][b - 1]
        return max(
            (split(y, depth, b - 1, k)[0] + _times(chance, value(m - y, depth - 1)[0]), y)
            for y in range(b, m)
        )

    @cache
    def value(m: int, depth: int) -> tuple[float, int]:
        most = 0 if depth == 0 else min(len(rows), m - 1)
        return max((split(m, depth, k, k)[0], k) for k in range(most + 1))

    return value, split


def _times(chance: float, tokens: float) -> float:
    return tokens if tokens == -np.inf else chance * tokens


def _shape(nodes: int, depth: int, width: int, split: Split, value: Value) -> TreeShape:
    """The tree behind a value, numbered level by level."""
    parents: list[int] = []
    level = [(ROOT, nodes, depth, width)]
    while level:
        below = []
        for node, m, left, b in level:
            for child_nodes in _children_sizes(m, left, b, split):
                parents.append(node)
                below.append(
                    (len(parents) - 1, child_nodes, left - 1, value(child_nodes, left - 1)[1])
                )
        level = below
    return TreeShape(tuple(parents))


def _children_sizes(m: int, depth: int, b: int, split: Split) -> list[int]:
    """Nodes of each child's subtree, in place order."""
    sizes: list[int] = []
    count = b
    while b > 0:
        rest = split(m, depth, b, count)[1]
        sizes.append(m - rest)
        m, b = rest, b - 1
    return sizes[::-1]


def _check(rows: Rows, draft_seconds: float, max_nodes: int, max_depth: int) -> None:
    if any(len(row) != k for k, row in enumerate(rows, 1)):
        raise UsageError(
            "acceptance by the number of siblings has k chances in its k-th row, for k = 1, 2, ..."
        )
    if (
        not rows
        or any(not 0 <= a <= 1 for row in rows for a in row)
        or max(map(sum, rows)) > 1 + 1e-9
    ):
        said = list(rows[-1]) if rows else []
        raise UsageError(
            f"acceptance is {said}; allowed: chances from 0 to 1 by place, at least one, "
            "sum at most 1"
        )
    if draft_seconds < 0:
        raise UsageError(f"draft_seconds is {draft_seconds}; allowed: from 0")
    if not 1 <= max_depth <= max_nodes <= MAX_NODES:
        raise UsageError(
            f"max_depth {max_depth} and max_nodes {max_nodes}: allowed: 1 <= max_depth "
            f"<= max_nodes <= {MAX_NODES}"
        )
