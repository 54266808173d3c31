"""Tokens per round of a finite chain, against the closed form, against summed outcomes, and against
long runs."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.core.formulas import expected_tokens
from draftproof.core.markov import round_starts, stationary, tokens_per_round

TARGET = np.array([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.1, 0.7, 0.2]])
DRAFT = np.array([[0.2, 0.5, 0.3], [0.5, 0.3, 0.2], [0.6, 0.2, 0.2]])
ACCEPT, REJECT = np.minimum(TARGET, DRAFT), np.maximum(TARGET - DRAFT, 0)


@pytest.mark.parametrize("k", range(7))
def test_one_state_is_the_closed_form(k: int) -> None:
    assert tokens_per_round([[0.8]], [[0.2]], [[1.0]], k) == pytest.approx(expected_tokens(0.8, k))


@pytest.mark.parametrize("k", range(5))
def test_equal_acceptance_everywhere_is_the_closed_form(k: int) -> None:
    assert tokens_per_round(0.7 * TARGET, 0.3 * TARGET, TARGET, k) == pytest.approx(
        expected_tokens(0.7, k)
    )


def test_without_drafts_rounds_begin_as_text_goes() -> None:
    assert tokens_per_round(ACCEPT, REJECT, TARGET, 0) == pytest.approx(1)
    assert round_starts(ACCEPT, REJECT, TARGET, 0) == pytest.approx(stationary(TARGET))


def test_stationary_is_left_as_it_is() -> None:
    law = stationary(TARGET)
    assert law @ TARGET == pytest.approx(law) and law.sum() == pytest.approx(1) and np.all(law > 0)


@pytest.mark.parametrize("k", [1, 3])
def test_starts_and_mean_agree_with_summed_rounds(k: int) -> None:
    """Round by round over every draft: where rounds begin settles, and the mean tokens with it."""
    where, mean = np.array([1.0, 0, 0]), 0.0
    for _ in range(200):
        after, mean, reached = np.zeros(3), 0.0, where
        for _ in range(k):
            mean += reached.sum()
            after += reached @ REJECT
            reached = reached @ ACCEPT
        mean += reached.sum()
        where = after + reached @ TARGET
    assert round_starts(ACCEPT, REJECT, TARGET, k) == pytest.approx(where)
    assert tokens_per_round(ACCEPT, REJECT, TARGET, k) == pytest.approx(mean)


def test_more_drafts_never_mean_fewer_tokens() -> None:
    values = [tokens_per_round(ACCEPT, REJECT, TARGET, k) for k in range(8)]
    assert values == sorted(values)
