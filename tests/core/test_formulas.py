"""The closed forms: published figures to the printed digit, edges exactly, wrong input by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof.core.formulas import (
    acceptance_rate,
    best_draft_length,
    break_even_cost,
    expected_speedup,
    expected_tokens,
    expected_tokens_by_position,
    round_length_law,
    saturation,
)
from draftproof.errors import UsageError

LENGTHS = np.arange(1, 11)
TABLE = {  # c = 0.05: tokens per pass, speedup, for 1 to 10 drafts
    0.6: (
        "1.60 1.96 2.18 2.31 2.38 2.43 2.46 2.47 2.48 2.49",
        "1.52 1.78 1.89 1.92 1.91 1.87 1.82 1.77 1.71 1.66",
    ),
    0.8: (
        "1.80 2.44 2.95 3.36 3.69 3.95 4.16 4.33 4.46 4.57",
        "1.71 2.22 2.57 2.80 2.95 3.04 3.08 3.09 3.08 3.05",
    ),
}


def printed(values: object) -> str:
    return " ".join(f"{value:.2f}" for value in np.atleast_1d(values))


def test_acceptance_rate_of_the_example_pair() -> None:
    assert acceptance_rate([0.5, 0.3, 0.2], [0.3, 0.3, 0.4]) == pytest.approx(0.8, abs=1e-15)


def test_acceptance_rate_is_one_minus_tv_row_by_row() -> None:
    target, draft = np.random.default_rng(0).dirichlet(np.ones(7), size=(2, 50))
    tv = np.abs(target - draft).sum(axis=1) / 2
    assert np.allclose(acceptance_rate(target, draft), 1 - tv, atol=1e-15)
    assert np.allclose(
        acceptance_rate(target, draft[0]), 1 - np.abs(target - draft[0]).sum(axis=1) / 2, atol=1e-15
    )


def test_expected_tokens_at_the_ends_is_exact() -> None:
    assert expected_tokens(0.0, 5) == 1.0
    assert expected_tokens(1.0, 5) == 6.0
    assert expected_tokens(0.8, 4) == pytest.approx(3.3616, abs=1e-14)
    assert expected_tokens(0.7, 0) == 1.0


@pytest.mark.parametrize("gap", [1e-3, 1e-8, 1e-12, 1e-15])
def test_expected_tokens_keeps_its_digits_near_alpha_one(gap: float) -> None:
    alpha = 1 - gap
    assert expected_tokens(alpha, 6) == pytest.approx(sum(alpha**i for i in range(7)), rel=1e-14)


@given(alpha=st.floats(0, 1), k=st.integers(0, 40))
def test_expected_tokens_is_the_geometric_sum(alpha: float, k: int) -> None:
    assert expected_tokens(alpha, k) == pytest.approx(
        sum(alpha**i for i in range(k + 1)), rel=1e-12
    )


@pytest.mark.parametrize("alpha", TABLE)
def test_the_table_for_cost_ratio_005(alpha: float) -> None:
    tokens, speedups = TABLE[alpha]
    assert printed(expected_tokens(alpha, LENGTHS)) == tokens
    assert printed(expected_speedup(alpha, LENGTHS, 0.05)) == speedups


def test_published_speedups() -> None:
    assert printed(expected_speedup(0.8, 4, 0.05)) == "2.80"
    assert expected_speedup(0.8, 4, 0.05) == pytest.approx((1 - 0.8**5) / 0.2 / 1.2, rel=1e-14)
    assert printed(expected_speedup(0.8, 5, 0.11)) == "2.38"
    assert printed(expected_speedup(0.8, 5, 0.11, verify_ratio=2.9)) == "1.07"


def test_best_lengths_at_cost_032() -> None:
    assert list(best_draft_length([0.6, 0.8], 0.32)) == [1, 3]
    assert printed(expected_speedup([0.6, 0.8], [1, 3], 0.32)) == "1.21 1.51"


def test_best_lengths_at_cost_005_are_those_of_the_table() -> None:
    assert list(best_draft_length([0.6, 0.8], 0.05)) == [4, 8]


def test_break_even_at_four_drafts() -> None:
    assert printed(break_even_cost([0.8, 0.6], 4)) == "0.59 0.33"
    assert expected_speedup(0.8, 4, break_even_cost(0.8, 4)) == pytest.approx(1)
    assert expected_speedup(0.8, 5, break_even_cost(0.8, 5, 2.9), 2.9) == pytest.approx(1)
    assert break_even_cost(0.1, 4, 2.0) < 0


def test_saturation() -> None:
    assert list(saturation([0.0, 0.5, 0.8])) == pytest.approx([1, 2, 5])
    assert saturation(1.0) == np.inf
    assert expected_tokens(0.8, 500) == pytest.approx(saturation(0.8))


@given(alpha=st.floats(0, 1), cost=st.floats(0, 2), longest=st.integers(0, 12))
def test_best_length_is_the_best_of_all(alpha: float, cost: float, longest: int) -> None:
    best = best_draft_length(alpha, cost, longest)
    assert 0 <= best <= longest
    gains = [expected_speedup(alpha, k, cost) for k in range(longest + 1)]
    assert gains[best] >= max(gains) * (1 - 1e-12)
    assert all(gain < gains[best] for gain in gains[:best])


def test_no_draft_when_it_does_not_pay() -> None:
    assert best_draft_length(0.3, 0.4) == 0
    assert best_draft_length(0.0, 0.0) == 0
    assert best_draft_length(1.0, 0.0, 7) == 7


def test_best_length_under_a_verify_ratio_that_rises() -> None:
    assert best_draft_length(0.8, 0.05, 16, lambda tokens: 1 + 0.2 * (tokens - 1.0)) == 3
    assert best_draft_length(0.8, 0.05, 16, lambda tokens: tokens * 1.0) == 0


def test_everything_broadcasts() -> None:
    alpha, k, cost = np.array([[0.2], [0.8]]), np.array([1, 2, 3]), 0.1
    table = expected_speedup(alpha, k, cost)
    assert table.shape == (2, 3)
    assert table[1, 2] == expected_speedup(0.8, 3, 0.1)
    assert best_draft_length(alpha, np.array([0.1, 0.5])).shape == (2, 2)
    assert (
        isinstance(float(expected_tokens(0.5, 2)), float) and np.ndim(expected_tokens(0.5, 2)) == 0
    )


def test_acceptance_by_position() -> None:
    assert expected_tokens_by_position([0.8] * 4) == pytest.approx(3.3616)
    assert expected_tokens_by_position([0.9, 0.5, 0.0, 0.7]) == pytest.approx(1 + 0.9 + 0.45)
    assert expected_tokens_by_position([]) == 1.0
    assert list(expected_tokens_by_position([[0.5, 0.5], [1, 1]])) == pytest.approx([1.75, 3.0])


def test_round_length_law_and_its_spread() -> None:
    """Four drafts at alpha 0.8: standard deviation 1.60, over 20,000 rounds a standard error of
    0.011; 2.95 without bonus."""
    law, lengths = round_length_law(0.8, 4), np.arange(1, 6)
    assert law.sum() == pytest.approx(1)
    mean = law @ lengths
    std = np.sqrt(law @ (lengths - mean) ** 2)
    assert mean == pytest.approx(3.3616)
    assert f"{std:.2f}" == "1.60" and f"{std / np.sqrt(20_000):.3f}" == "0.011"
    assert f"{mean - 0.8**4:.2f}" == "2.95" and f"{0.8**4 / mean:.0%}" == "12%"
    assert list(round_length_law(1.0, 2)) == [0, 0, 1] and list(round_length_law(0.0, 2)) == [
        1,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: expected_tokens(1.2, 3), "alpha must be between 0 and 1, got 1.2"),
        (lambda: expected_tokens([0.5, -0.1], 3), "alpha must be between 0 and 1, got -0.1"),
        (lambda: expected_tokens(float("nan"), 3), "alpha must be finite, got nan"),
        (
            lambda: expected_tokens("high", 3),
            "alpha must be a number or an array of numbers, got 'high'",
        ),
        (lambda: expected_tokens(0.5, 2.5), "k must be a whole number of at least 0, got 2.5"),
        (lambda: expected_tokens(0.5, -1), "k must be a whole number of at least 0, got -1"),
        (lambda: saturation(2), "alpha must be between 0 and 1, got 2"),
        (lambda: expected_tokens_by_position([0.5, 1.5]), "rates must be between 0 and 1, got 1.5"),
        (lambda: round_length_law(-1, 2), "alpha must be between 0 and 1, got -1"),
        (lambda: expected_speedup(0.5, 2, -0.1), "cost_ratio must be at least 0, got -0.1"),
        (lambda: expected_speedup(0.5, 2, 0.1, 0), "verify_ratio must be greater than 0, got 0"),
        (lambda: break_even_cost(0.5, 0), "k must be a whole number of at least 1, got 0"),
        (
            lambda: best_draft_length(0.5, 0.1, -1),
            "max_length must be a whole number of at least 0, got -1",
        ),
        (
            lambda: acceptance_rate([0.5, 0.4], [0.5, 0.5]),
            "p must sum to 1 over the vocabulary, got a sum of 0.9",
        ),
        (
            lambda: acceptance_rate([0.5, 0.5], [1.5, -0.5]),
            "q must have no negative entries, got -0.5",
        ),
        (lambda: acceptance_rate([0.5, 0.5], [0.5, float("inf")]), "q must be finite, got inf"),
        (
            lambda: acceptance_rate([0.5, 0.5], [0.2, 0.3, 0.5]),
            "p has 2 tokens and q has 3; both must be over one vocabulary",
        ),
        (
            lambda: acceptance_rate(1.0, [1.0]),
            "p must be a law over at least one token, got shape ()",
        ),
        (
            lambda: acceptance_rate([], []),
            "p must be a law over at least one token, got shape (0,)",
        ),
        (
            lambda: acceptance_rate(["a"], [1.0]),
            "p must be a number or an array of numbers, got ['a']",
        ),
    ],
)
def test_wrong_input_is_named(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value) == sentence
