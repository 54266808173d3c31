"""Shapes of draft trees: both ways of writing them, and what is refused."""

from __future__ import annotations

import pytest

from draftproof.core.tree import TreeShape
from draftproof.errors import UsageError


def test_levels_and_parents_say_the_same():
    shape = TreeShape.parse("2,2,1")
    assert shape.parents == (-1, -1, 0, 0, 1, 1, 2, 3, 4, 5)
    assert shape == TreeShape.parse([2, 2, 1]) == TreeShape.parse("-1,-1,0,0,1,1,2,3,4,5")
    assert shape.levels == ((0, 1), (2, 3, 4, 5), (6, 7, 8, 9))
    assert shape.children[-1] == (0, 1)
    assert (shape.depth, len(shape), shape.is_chain) == (3, 10, False)
    assert TreeShape.chain(4) == TreeShape.parse("1,1,1,1")
    assert TreeShape.chain(4).is_chain


@pytest.mark.parametrize(
    "value, message",
    [
        ("2,x", "children per level"),
        ("", "children per level"),
        ([2, 1.5], "children per level"),
        (True, "children per level"),
        ([], "at least one level"),
        ("2,0", "at least one child"),
        ("-1,-1,1,0", "level order"),
        ("-1,1", "level order"),
        ("16,16,16", "more than 256 nodes"),
    ],
)
def test_what_is_no_shape_is_refused(value, message):
    with pytest.raises(UsageError, match=message):
        TreeShape.parse(value)
