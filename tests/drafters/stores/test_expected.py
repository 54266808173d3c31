"""Finding one's place again in an expected text, after every kind of edit."""

from __future__ import annotations

from itertools import islice

import pytest

from draftproof.drafters.stores.expected import NEAR, ExpectedText

EXPECTED = list(range(100, 160))


def expecting(text, expected=EXPECTED, count=3):
    """What is expected next after `text`."""
    followed = ExpectedText(expected)
    for token in text:
        followed.read(token)
    return list(islice(followed.going_on(), count))


def test_it_begins_at_the_beginning_and_ends_at_the_end():
    assert expecting([]) == [100, 101, 102]
    assert expecting(EXPECTED[:58]) == [158, 159]
    assert expecting(EXPECTED) == []
    assert expecting([], expected=[]) == []


@pytest.mark.parametrize(
    "text",
    [
        [*EXPECTED[:10], 1, 2, 3, *EXPECTED[10:11]],  # inserted
        [*EXPECTED[:5], *EXPECTED[10:11]],  # deleted
        [*EXPECTED[:7], 1, 2, *EXPECTED[10:11]],  # replaced by fewer
        [*EXPECTED[:9], 1, 2, 3, *EXPECTED[10:11]],  # replaced by more
    ],
)
def test_one_token_near_the_place_is_enough(text):
    assert expecting(text) == [111, 112, 113]


def test_another_beginning():
    assert expecting([1, 2, 105]) == [106, 107, 108]


def test_far_away_one_token_is_not_believed_and_two_are():
    far = 10 + NEAR + 20
    assert expecting([*EXPECTED[:10], 1, EXPECTED[far]])[:1] != [EXPECTED[far + 1]]
    assert expecting([*EXPECTED[:10], 1, *EXPECTED[far : far + 2]]) == EXPECTED[far + 2 : far + 5]


def test_a_moved_block_and_back():
    moved = [*EXPECTED[:10], *EXPECTED[40:50]]
    assert expecting(moved[:13]) == [143, 144, 145]
    assert expecting([*moved, *EXPECTED[10:13]]) == [113, 114, 115]


def test_of_two_agreements_the_longer_wins_and_of_equals_the_nearer():
    expected = [1, 7, 2, 3, 9, 7, 2, 4, 9, 7, 2, 5]
    assert expecting([1, 7, 2, 3, 9, 7, 2], expected, 1) == [4]  # in place, not by search
    assert expecting([8, 7], expected, 2) == [2, 3]
    assert expecting([8, 9, 7], expected, 2) == [2, 4]


def test_a_replacement_is_expected_again():
    name, new = [1, 2], [8, 9, 9]
    expected = [10, *name, 11, 12, *name, 11, 13, 14]
    text = [10, *new, 11, 12]
    assert expecting(text, expected, 5) == [*new, 11, 13]
    assert expecting([*text, *name, 11], expected, 2) == [13, 14]


def test_a_replacement_that_stopped_is_no_longer_expected():
    name, new = [1, 2], [8, 9]
    expected = [10, *name, 11, 12, *name, 11, 13, *name, 11, 14]
    assert expecting([10, *new, 11, 12, *new, 11, 13], expected, 3) == [*new, 11]
    assert expecting([10, *new, 11, 12, *name, 11, 13], expected, 3) == [*name, 11]


def test_just_after_a_token_that_was_replaced_the_rest_is_guessed_in_step():
    assert expecting([*EXPECTED[:10], 1]) == EXPECTED[11:14]
    assert expecting([*EXPECTED[:10], *[1] * (NEAR + 1)]) == []


def test_a_token_found_by_chance_does_not_lose_the_place():
    """114 stands three tokens ahead by chance; the text then goes on where it had parted."""
    text = [*EXPECTED[:10], 1, EXPECTED[14], 2, EXPECTED[10]]
    assert expecting(text) == EXPECTED[11:14]
