"""The builder: the only way to add to a draft, and nothing that would bias it can be written."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.core.chance import KeyedChance
from draftproof.core.records import Draft
from draftproof.drafters.builder import DraftBuilder
from draftproof.errors import UsageError


def builder(depth=3):
    return DraftBuilder(KeyedChance((0, 0), 5), depth=depth, vocab_size=8)


def test_the_builder_records_the_law_it_drew_from():
    law = np.full(8, 1 / 8)
    draft = builder()
    token = draft.draw(law)
    built = draft.build()
    assert built == Draft((token,), (-1,), selection="iid")
    np.testing.assert_array_equal(built.laws[-1], law)


def test_the_recorded_law_is_a_copy_that_sums_to_one():
    """A truncated law that was not renormalised, and a buffer that is used again, would change the
    law in the ratio."""
    buffer = np.array([0.6, 0.2, 0, 0, 0, 0, 0, 0])
    draft = builder()
    draft.draw(buffer)
    buffer[:] = buffer[::-1].copy()
    draft.draw(buffer)
    laws = draft.build().laws
    np.testing.assert_allclose(laws[-1], [0.75, 0.25, 0, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(laws[0], [0, 0, 0, 0, 0, 0, 0.25, 0.75])


def test_what_is_no_law_is_refused():
    for law, said in (
        (np.full(8, np.nan), "NaN"),
        (np.array([-0.5, 1.0, 0.5, 0, 0, 0, 0, 0]), "negative"),
        (np.zeros(8), "no mass"),
        (np.full(7, 1 / 7), r"shape \[7\]"),
        ([0.125] * 8, "shape list"),
    ):
        with pytest.raises(UsageError, match=said):
            builder().draw(law)
    with pytest.raises(UsageError, match="1.7"):
        builder().guess(1.7)


def test_the_builder_takes_nothing_back_and_mixes_nothing():
    draft = builder(depth=2)
    draft.guess(3)
    with pytest.raises(UsageError, match="either drawn or guessed"):
        draft.draw(np.full(8, 1 / 8))
    draft.guess(4)
    assert draft.room == 0
    with pytest.raises(UsageError, match="full"):
        draft.guess(5)
    assert not {
        name for name in dir(draft) if name in ("pop", "remove", "clear", "discard", "undo")
    }
    with pytest.raises(UsageError, match="ids go from 0 to 7"):
        builder().guess(8)
    with pytest.raises(UsageError, match="not in the draft"):
        builder().guess(1, parent=2)


def test_the_number_of_drawn_siblings_is_fixed_before_the_first_is_seen():
    """Look at a sibling, then draw another: `k_seq` is then biased by .09, and by .56 where the law
    was recorded again."""
    law, other = np.full(8, 1 / 8), np.eye(8)[3]
    for again in (
        lambda draft: draft.draw(law, parent=-1),
        lambda draft: draft.draw(other, parent=-1),
        lambda draft: draft.draw_children(law, 1, "iid", -1),
    ):
        for first in (
            lambda draft: draft.draw(law),
            lambda draft: draft.draw_children(law, 2, "iid"),
        ):
            draft = DraftBuilder(builder()._chance, depth=2, vocab_size=8, max_nodes=6)
            first(draft)
            before = draft.build()
            with pytest.raises(
                UsageError, match="in one call, their number fixed before the first is seen"
            ):
                again(draft)
            after = draft.build()
            assert after == before
            np.testing.assert_array_equal(after.laws[-1], law)
