"""A measured verify curve: ratios at the points, straight lines between them, no guessing
beyond."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.core.formulas import best_draft_length
from draftproof.costs.verify_curve import VerifyCurve
from draftproof.errors import UsageError


def test_ratios_and_interpolation() -> None:
    curve = VerifyCurve.from_times({8: 20.0, 1: 10.0, 2: 11.0})
    assert curve == VerifyCurve((1, 2, 8), (1.0, 1.1, 2.0))
    assert curve([1, 2, 5, 8]) == pytest.approx([1.0, 1.1, 1.55, 2.0])
    assert float(curve(2)) == pytest.approx(1.1)


def test_it_serves_best_draft_length() -> None:
    flat, steep = VerifyCurve((1, 9), (1.0, 1.0)), VerifyCurve((1, 2, 9), (1.0, 1.05, 6.0))
    assert best_draft_length(0.8, 0.05, 8, flat) == 8
    assert best_draft_length(0.8, 0.05, 8, steep) == 1


@pytest.mark.parametrize("asked", [0, 9, [1, 12]])
def test_beyond_what_was_measured_it_refuses(asked: object) -> None:
    with pytest.raises(UsageError, match="covers passes over 1 to 8 tokens"):
        VerifyCurve((1, 8), (1.0, 2.0))(np.asarray(asked))


@pytest.mark.parametrize(
    ("tokens", "ratios", "sentence"),
    [
        ((1, 2), (1.0,), "starts with ratio 1 at 1 token"),
        ((), (), "starts with ratio 1 at 1 token"),
        ((2, 4), (1.0, 1.0), "starts with ratio 1 at 1 token"),
        ((1, 4), (2.0, 3.0), "starts with ratio 1 at 1 token"),
        ((1, 4, 4), (1.0, 2.0, 2.0), "must rise"),
        ((1, 4), (1.0, 0.0), "must be positive"),
        ((1, 4), (1.0, float("nan")), "must be positive"),
    ],
)
def test_a_curve_that_makes_no_sense_is_refused(
    tokens: tuple[int, ...], ratios: tuple[float, ...], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        VerifyCurve(tokens, ratios)


def test_times_need_the_single_token() -> None:
    with pytest.raises(UsageError, match="needs the time of a pass over 1 token"):
        VerifyCurve.from_times({2: 1.0})
