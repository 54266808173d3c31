"""The draft length by batch size, from costs and acceptance."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.core.formulas import expected_tokens
from draftproof.decode.config import SpeculativeConfig
from draftproof.errors import UsageError
from draftproof.plan.schedule import batch_schedule, batch_speedups, by_batch, entries, parse_batch_sizes, tokens_by_length


def bound(sequences: int, tokens: int) -> float:
    """A machine that reads its weights in 1 and computes 1/32 a token: flat up to 32 tokens, then linear."""
    return max(1.0, sequences * tokens / 32)


def test_free_verification_takes_the_longest_draft_and_dear_verification_none():
    tokens = tokens_by_length([0.8], 6)
    assert batch_schedule(tokens, lambda b, n: 1.0, batch_sizes=(1, 2)) == [[1, 2, 6]]
    assert batch_schedule(tokens, lambda b, n: float(n), batch_sizes=(1, 2)) == [[1, 2, 0]]


def test_lengths_fall_with_the_batch_and_leave_no_gap():
    schedule = batch_schedule(tokens_by_length([0.6], 7), bound, batch_sizes=(1, 2, 4, 8, 16, 32, 64))
    lengths = [k for _, _, k in schedule]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 3
    assert lengths[-1] == 0
    assert [first for first, _, _ in schedule] == [1, *(last + 1 for _, last, _ in schedule[:-1])]
    assert schedule[-1][1] == 64
    config = SpeculativeConfig.from_dict({"method": "ngram", "num_speculative_tokens_per_batch_size": schedule})
    assert config.num_speculative_tokens == lengths[0]


def test_speedups_are_the_formulas():
    """alpha .8, k 5, c .11: 2.38 if verification is free, 1.07 if T(6) = 2.9 T(1) (llama.cpp#3649)."""
    tokens = tokens_by_length([0.8], 5)
    free = batch_speedups(tokens, 1, lambda b, n: 1.0, lambda b: 0.11)
    dear = batch_speedups(tokens, 1, lambda b, n: 1.0 if n == 1 else 2.9, lambda b: 0.11)
    assert free[0] == dear[0] == 1
    assert free[5] == pytest.approx(2.38, abs=0.005)
    assert dear[5] == pytest.approx(1.07, abs=0.005)


def test_tokens_by_position_agree_with_one_overlap():
    assert tokens_by_length([0.7, 0.7, 0.7], 5) == pytest.approx([expected_tokens(0.7, k) for k in range(6)])
    assert tokens_by_length([0.5, 0.0], 3) == [1.0, 1.5, 1.5, 1.5]


def test_wrong_input_is_refused():
    with pytest.raises(UsageError, match="begins with 1"):
        batch_schedule([1.5], bound)
    with pytest.raises(UsageError, match="ascends from 1"):
        batch_schedule([1.0, 1.5], bound, batch_sizes=(2, 4))
    with pytest.raises(UsageError, match="batch_size is 0"):
        batch_speedups([1.0, 1.5], 0, bound)


def choice(drafter: str, k: int, point: float, low: float, tree: Any = None) -> dict[str, Any]:
    speed = {"point": point, "low": low, "high": point}
    return {"drafter": drafter, "num_speculative_tokens": k, "tokens_per_round": 1.0 + k, "speedup": speed, "tree": tree}


def test_a_length_is_scheduled_only_where_its_interval_stays_above_one() -> None:
    """A longer draft must gain 2% over a shorter one; trees have no place in a schedule; the drafter that gains most wins."""
    ours = {
        1: [choice("a", 1, 1.5, 1.2), choice("a", 4, 1.52, 1.2), choice("a", 8, 1.9, 0.9), choice("a", 2, 3.0, 2.0, [-1, -1])],
        2: [choice("a", 1, 1.3, 1.01), choice("a", 4, 1.4, 1.1)],
        4: [choice("a", 1, 1.2, 0.99), choice("a", 4, 0.7, 0.6)],
        8: [choice("a", 1, 0.8, 0.7)],
    }
    found = by_batch({size: [*choices, choice("b", 1, 1.05, 1.03)] for size, choices in ours.items()})
    assert found["drafter"] == "a"
    assert found["num_speculative_tokens_per_batch_size"] == [[1, 1, 1], [2, 2, 4], [3, 8, 0]]
    losing = next(row for row in found["rows"] if row["batch"] == 4)
    assert losing["num_speculative_tokens"] == 0 and losing["speedup"]["point"] == 1.2


def test_between_two_sizes_the_length_of_the_larger_counts() -> None:
    assert entries({2: 5, 4: 5, 16: 0}) == [[1, 4, 5], [5, 16, 0]]


@pytest.mark.parametrize(("text", "sizes"), [("8", (8,)), ("1,2,16", (1, 2, 16))])
def test_batch_sizes_are_read(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_batch_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "0", "2,1", "1,1", "many", "1,9999"])
def test_other_batch_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="several that ascend"):
        parse_batch_sizes(text)
