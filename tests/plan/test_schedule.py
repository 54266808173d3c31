"""The draft length by batch size, from costs and acceptance."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.decode.config import SpeculativeConfig
from draftproof.errors import UsageError
from draftproof.plan.schedule import best_length, by_batch, entries, parse_batch_sizes


def choice(drafter: str, k: int, point: float, low: float, tree: Any = None) -> dict[str, Any]:
    speed = {"point": point, "low": low, "high": point}
    return {
        "drafter": drafter,
        "num_speculative_tokens": k,
        "tokens_per_round": 1.0 + k,
        "speedup": speed,
        "tree": tree,
    }


def test_a_length_is_scheduled_only_where_its_interval_stays_above_one() -> None:
    """A longer draft must gain 2% over a shorter one; trees have no place in a schedule; the
    drafter that gains most wins."""
    ours = {
        1: [
            choice("a", 1, 1.5, 1.2),
            choice("a", 4, 1.52, 1.2),
            choice("a", 8, 1.9, 0.9),
            choice("a", 2, 3.0, 2.0, [-1, -1]),
        ],
        2: [choice("a", 1, 1.3, 1.01), choice("a", 4, 1.4, 1.1)],
        4: [choice("a", 1, 1.2, 0.99), choice("a", 4, 0.7, 0.6)],
        8: [choice("a", 1, 0.8, 0.7)],
    }
    found = by_batch(
        {size: [*choices, choice("b", 1, 1.05, 1.03)] for size, choices in ours.items()}
    )
    assert found["drafter"] == "a"
    assert found["num_speculative_tokens_per_batch_size"] == [[1, 1, 1], [2, 2, 4], [3, 8, 0]]
    losing = next(row for row in found["rows"] if row["batch"] == 4)
    assert losing["num_speculative_tokens"] == 0 and losing["speedup"]["point"] == 1.2


def test_the_length_is_the_fastest_that_gains_enough_over_shorter_ones() -> None:
    assert best_length({1: 1.5, 2: 1.52, 4: 1.6}) == 4 and best_length({1: 1.5, 2: 1.52}) == 1
    assert best_length({1: 1.01, 4: 0.7}) == 0 and best_length({}) == 0


def test_between_two_sizes_the_length_of_the_larger_counts_and_no_gap_is_left() -> None:
    assert entries({2: 5, 4: 5, 16: 0}) == [[1, 4, 5], [5, 16, 0]]
    schedule = entries({1: 7, 2: 7, 4: 4, 8: 1, 64: 0})
    assert [first for first, _, _ in schedule] == [1, *(last + 1 for _, last, _ in schedule[:-1])]
    config = SpeculativeConfig.from_dict(
        {"method": "ngram", "num_speculative_tokens_per_batch_size": schedule}
    )
    assert config.num_speculative_tokens == 7 and schedule[-1][1] == 64


@pytest.mark.parametrize(("text", "sizes"), [("8", (8,)), ("1,2,16", (1, 2, 16))])
def test_batch_sizes_are_read(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_batch_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "0", "2,1", "1,1", "many", "1,9999"])
def test_other_batch_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="several that ascend"):
        parse_batch_sizes(text)
