"""The dynamic programme of tree shapes against every shape there is."""

from __future__ import annotations

from itertools import product

import pytest

from draftproof.core.best_tree import best_tree, expected_tokens_of_shape
from draftproof.core.tree import TreeShape
from draftproof.errors import UsageError


def every_shape(nodes):
    for parents in product(*(range(-1, node) for node in range(nodes))):
        if list(parents) == sorted(parents):
            yield TreeShape(parents)


def test_expected_tokens_of_a_shape():
    assert expected_tokens_of_shape([0.6, 0.2], TreeShape((-1, -1, 0))) == pytest.approx(
        1 + 0.6 + 0.2 + 0.36
    )
    assert expected_tokens_of_shape([0.5], TreeShape((-1, -1))) == pytest.approx(1.5)
    by_count = [[0.6], [0.5, 0.3]]
    assert expected_tokens_of_shape(by_count, TreeShape((-1, -1, 0))) == pytest.approx(
        1 + 0.5 + 0.3 + 0.5 * 0.6
    )


BY_COUNT = ((0.6,), (0.3, 0.5), (0.3, 0.2, 0.45))
"""As `greedy_k` has it: the last of k siblings is the one that is drawn."""


@pytest.mark.parametrize(
    "acceptance", [(0.6, 0.2), (0.4, 0.3, 0.2), (0.9,), (0.34, 0.33, 0.32), (0.0, 0.0), BY_COUNT]
)
@pytest.mark.parametrize(
    "draft_seconds, slope", [(0.0, 0.05), (0.1, 0.01), (0.3, 0.2), (0.02, 0.0)]
)
def test_no_shape_is_better(acceptance, draft_seconds, slope):
    def verify(tokens):
        return 1.0 + slope * (tokens - 1)

    shapes = [shape for nodes in range(1, 7) for shape in every_shape(nodes) if shape.depth <= 4]
    rates = [
        (shape.depth * draft_seconds + verify(len(shape) + 1))
        / expected_tokens_of_shape(acceptance, shape)
        for shape in shapes
    ]
    found = best_tree(acceptance, draft_seconds, verify, max_nodes=6, max_depth=4)
    assert found.seconds_per_token == pytest.approx(min(1.0, *rates), abs=1e-12)
    if found.shape is None:
        assert found.expected_tokens == 1.0
    else:
        assert expected_tokens_of_shape(acceptance, found.shape) == pytest.approx(
            found.expected_tokens, abs=1e-12
        )
        assert found.seconds_per_token == pytest.approx(
            (found.shape.depth * draft_seconds + verify(len(found.shape) + 1))
            / found.expected_tokens,
            abs=1e-12,
        )


def test_free_verification_of_many_nodes_makes_a_bush():
    found = best_tree([0.5, 0.2, 0.1], 0.05, lambda tokens: 1.0, max_nodes=40, max_depth=6)
    assert found.shape is not None
    assert len(found.shape) == 40
    assert not found.shape.is_chain


@pytest.mark.parametrize(
    "acceptance, limits, message",
    [
        ([], {}, "acceptance is"),
        ([0.7, 0.6], {}, "sum at most 1"),
        ([[0.7], [0.6]], {}, "k chances in its k-th row"),
        ([0.5], {"max_nodes": 2, "max_depth": 3}, "max_depth 3"),
    ],
)
def test_bad_values_are_refused(acceptance, limits, message):
    with pytest.raises(UsageError, match=message):
        best_tree(acceptance, 0.1, lambda tokens: 1.0, **limits)
