"""LawPipeline: numerics, histories, ties, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Array
from draftproof.errors import InvalidLogitsError, UsageError
from pipelines import CONTEXT, INF, any_fields, makers, pipeline


@makers
def test_dtypes(make: Any) -> None:
    logits = make([1.0, 2.0, 3.0, -1.0])
    law = pipeline(temperature=0.5).law(logits, CONTEXT)
    wide = logits.dtype in (np.float64, torch.float64)
    expected = torch.float64 if wide else torch.float32
    assert law.dtype == (
        expected if isinstance(logits, torch.Tensor) else np.float64 if wide else np.float32
    )
    exact = np.exp(2 * np.array([1.0, 2.0, 3.0, -1.0]))
    np.testing.assert_allclose(np.asarray(law), exact / exact.sum(), rtol=1e-15 if wide else 1e-6)


@makers
@any_fields
def test_the_callers_logits_are_left_alone(make: Any, fields: dict[str, Any]) -> None:
    laws = pipeline(8, **fields)
    logits = make(np.random.default_rng(1).standard_normal((2, 8)))
    before = logits.clone() if isinstance(logits, torch.Tensor) else logits.copy()
    laws.laws(logits, CONTEXT, [(), (3, 0)])
    laws.law(logits[0], CONTEXT)[0] = 7.0  # the law is the caller's own to change
    laws.greedy_tokens(logits, CONTEXT, [(), (3, 0)])
    assert (before == logits).all()


@any_fields
def test_rows_together_equal_rows_alone_to_the_bit(fields: dict[str, Any]) -> None:
    laws = pipeline(8, **fields)
    logits = torch.from_numpy(np.random.default_rng(3).standard_normal((4, 8)).astype(np.float32))
    paths = [(), (3,), (3, 0), (3, 3, 1)]
    together = laws.laws(logits, CONTEXT, paths)
    alone = torch.stack(
        [laws.law(row, CONTEXT, path) for row, path in zip(logits, paths, strict=True)]
    )
    assert torch.equal(together, alone)
    committed = torch.stack(
        [laws.law(row, [*CONTEXT, *path]) for row, path in zip(logits, paths, strict=True)]
    )
    assert torch.equal(together, committed)
    tokens = laws.greedy_tokens(logits, CONTEXT, paths)
    assert tokens == [
        laws.greedy_tokens(row[None], [*CONTEXT, *path], [()])[0]
        for row, path in zip(logits, paths, strict=True)
    ]


@any_fields
def test_numpy_and_torch_agree(fields: dict[str, Any]) -> None:
    laws = pipeline(8, **fields)
    logits = np.random.default_rng(4).standard_normal((50, 8)).round(1)
    paths = [(3, 0)] * 50
    ours = laws.laws(logits, CONTEXT, paths)
    theirs = laws.laws(torch.from_numpy(logits), CONTEXT, paths).numpy()
    assert ((ours == 0) == (theirs == 0)).all()
    np.testing.assert_allclose(ours, theirs, rtol=1e-15)
    assert laws.greedy_tokens(logits, CONTEXT, paths) == laws.greedy_tokens(
        torch.from_numpy(logits), CONTEXT, paths
    )


def test_a_truncated_law_has_the_same_bits_in_numpy_and_torch() -> None:
    logits = np.random.default_rng(4).standard_normal(50_000).astype(np.float32)
    laws = pipeline(50_000, temperature=0.7, top_p=0.9)
    assert (laws.law(logits, CONTEXT) == laws.law(torch.from_numpy(logits), CONTEXT).numpy()).all()


@makers
@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-200, 1e-46, 1e-40, 1e-20, 1e-5])
def test_any_positive_temperature_is_finite_and_shares_between_equal_tops(
    make: Any, temperature: float
) -> None:
    law = pipeline(5, temperature=temperature).law(make([1.0, 3.0, 3.0, 2.0, -INF]), CONTEXT)
    assert law.tolist() == [0, 0.5, 0.5, 0, 0]


@makers
def test_a_huge_temperature_is_uniform_over_what_is_allowed(make: Any) -> None:
    for temperature in (1e20, 1e35, 1e39, 1e100, 1e308):
        law = pipeline(temperature=temperature, suppress_tokens=[2]).law(
            make([-900.0, 3.0, 5.0, 800.0]), CONTEXT
        )
        np.testing.assert_allclose(np.asarray(law), [1 / 3, 1 / 3, 0, 1 / 3], rtol=1e-6)


def test_tiny_temperatures_still_tell_tiny_differences_apart() -> None:
    tiny = 5e-324
    law = pipeline(2, temperature=tiny).law(np.array([tiny, 0.0]), CONTEXT)
    np.testing.assert_allclose(law, [1 / (1 + math.exp(-1)), 1 / (1 + math.e)], rtol=1e-12)
    small = np.float32(2.0**-149)
    law = pipeline(2, temperature=2.0**-149).law(np.array([small, 0], dtype=np.float32), CONTEXT)
    np.testing.assert_allclose(law, [1 / (1 + math.exp(-1)), 1 / (1 + math.e)], rtol=1e-6)


def test_large_logits_do_not_overflow() -> None:
    law = pipeline(temperature=0.01).law(
        np.array([1e38, 1e38, -3e38, 0], dtype=np.float32), CONTEXT
    )
    assert law.tolist() == [0.5, 0.5, 0, 0]


@makers
def test_greedy_takes_the_lowest_id_among_equal_tops(make: Any) -> None:
    laws = pipeline(temperature=0)
    rows = make([[1.0, 3.0, 3.0, 3.0], [0.0, -0.0, 0.0, -1.0], [-2.0, -3.0, -2.0, -INF]])
    assert laws.greedy
    assert laws.greedy_tokens(rows, CONTEXT, [()] * 3) == [1, 0, 0]
    assert laws.laws(rows, CONTEXT, [()] * 3).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]


def test_reads_history() -> None:
    assert not pipeline(
        temperature=0.7, top_p=0.9, logit_bias={1: 1.0}, suppress_tokens=[2], bad_words_ids=[[3]]
    ).reads_history
    assert not pipeline(min_tokens=3).reads_history  # there is no end token to hold back
    for fields in (
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"bad_words_ids": [[1, 2]]},
        {"min_tokens": 3, "stop_token_ids": [1]},
        {"logits_processors": [lambda ids, scores: scores]},
        {"logits_warpers": [lambda ids, scores: scores]},
    ):
        assert pipeline(**fields).reads_history, fields


@makers
@pytest.mark.parametrize(
    "fields",
    [{}, {"temperature": 0}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}, {"temperature": 0.3}],
)
@pytest.mark.parametrize(
    ("values", "what"),
    [
        (
            [1.0, math.nan, 0.0, 0.0],
            r"row 1, for position 4, hold NaN \(first at token 1\): the model is at fault",
        ),
        ([1.0, 0.0, INF, 0.0], r"row 1, for position 4, hold \+inf \(first at token 2\)"),
        ([-INF] * 4, "row 1, for position 4, are all -inf: the model allows no token"),
    ],
)
def test_invalid_rows_are_named(
    make: Any, fields: dict[str, Any], values: list[float], what: str
) -> None:
    rows = make([[0.0, 1.0, 2.0, 3.0], values])
    laws = pipeline(**fields)
    with pytest.raises(InvalidLogitsError, match=what):
        laws.laws(rows, CONTEXT, [(), (2,)])
    with pytest.raises(InvalidLogitsError, match=what):
        laws.greedy_tokens(rows, CONTEXT, [(), (2,)])
    with pytest.raises(InvalidLogitsError):
        laws.law(rows[1], CONTEXT)


def test_a_row_left_empty_by_bans_is_named_as_such() -> None:
    laws = pipeline(
        allowed_token_ids=[1, 2], bad_words_ids=[[3, 2]], min_tokens=9, stop_token_ids=[1]
    )
    with pytest.raises(
        InvalidLogitsError,
        match=(
            "position 3, are all -inf after bans, grammar and logits processors: no token is "
            "allowed"
        ),
    ):
        laws.law(np.zeros(4), CONTEXT)
    laws = pipeline(suppress_tokens=[0])
    with pytest.raises(InvalidLogitsError, match="no token is allowed there"):
        laws.law(np.array([0, -INF, -INF, -INF]), CONTEXT)


@pytest.mark.parametrize(
    "fields",
    [
        {"allowed_token_ids": [1]},
        {"allowed_token_ids": [1, 2], "stop_token_ids": [2]},
        {"suppress_tokens": [0, 2, 3]},
    ],
)
def test_ends_alone_cannot_fill_min_tokens(fields: dict[str, Any]) -> None:
    """Refused when the request is made, and not by a row without a token in the first pass."""
    with pytest.raises(
        UsageError, match="min_tokens is 3, and every token left to sample ends the text"
    ):
        LawPipeline(
            SamplingParams(min_tokens=3, **fields),
            num_prompt_tokens=1,
            vocab_size=4,
            eos_token_ids=(1,),
        )
    LawPipeline(SamplingParams(**fields), num_prompt_tokens=1, vocab_size=4, eos_token_ids=(1,))


def test_nan_made_by_a_processor_or_warper_is_named_as_such() -> None:
    def broken(ids: Array, scores: Array) -> Array:
        return scores * math.nan

    with pytest.raises(
        InvalidLogitsError,
        match="hold NaN after biases, penalties and logits processors, but not before",
    ):
        pipeline(logits_processors=[broken]).law(np.zeros(4), CONTEXT)
    with pytest.raises(
        InvalidLogitsError, match="the logits warpers left no token or NaN at position 3"
    ):
        pipeline(logits_warpers=[broken]).law(np.zeros(4), CONTEXT)
    with pytest.raises(InvalidLogitsError, match=r"hold \+inf after biases"):
        pipeline(repetition_penalty=1e-6).law(np.array([0, 1e35, 0, 0], dtype=np.float32), CONTEXT)


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the logits have shape \[1, 5\]; allowed: \[1, 4\]"):
        pipeline(4).law(np.zeros(5), CONTEXT)
    with pytest.raises(UsageError, match=r"shape \[2, 4\]; allowed: \[3, 4\]"):
        pipeline(4).laws(np.zeros((2, 4)), CONTEXT, [(), (), ()])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logit_bias", {4: 1.0}),
        ("allowed_token_ids", [1, 4]),
        ("suppress_tokens", [4]),
        ("stop_token_ids", [4]),
        ("bad_words_ids", [[1, 4]]),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"^{name} has token id 4; allowed: ids from 0 to 3"):
        pipeline(4, **{name: value})


def test_bans_that_leave_nothing_and_unresolved_words_are_refused() -> None:
    with pytest.raises(UsageError, match="leave no token to sample"):
        pipeline(4, allowed_token_ids=[1, 2], suppress_tokens=[1], bad_words_ids=[[2]])
    with pytest.raises(UsageError, match="leave no token to sample"):
        pipeline(2, logit_bias={0: -INF, 1: -INF})
    with pytest.raises(UsageError, match="bad_words is .* needs a tokenizer"):
        pipeline(4, bad_words=["x"])


def test_processors_get_their_own_history_and_scores() -> None:
    seen: list[tuple[list[int], list[int], torch.dtype]] = []

    def spy(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        seen.append((ids.tolist()[0], list(scores.shape), ids.dtype))
        ids.zero_()
        return scores.fill_(0.0)  # in place: nobody else may notice

    laws = pipeline(logits_processors=[spy])
    logits = torch.tensor([[0.0, 1, 2, 3], [3, 2, 1, 0]])
    for _ in range(2):
        assert laws.laws(logits, CONTEXT, [(), (0, 2)]).tolist() == [[0.25] * 4] * 2
    assert seen == [([1, 2, 3], [1, 4], torch.int64), ([1, 2, 3, 0, 2], [1, 4], torch.int64)] * 2
    assert logits.tolist() == [[0, 1, 2, 3], [3, 2, 1, 0]]


@pytest.mark.parametrize("result", [None, torch.zeros(4), torch.zeros(1, 5)])
def test_a_processor_with_a_wrong_result_is_named(result: Any) -> None:
    def wrong(ids: Array, scores: Array) -> Any:
        return result

    with pytest.raises(
        UsageError,
        match=r"the logits processor wrong returned .*; allowed: scores of shape \[1, 4\]",
    ):
        pipeline(logits_processors=[wrong]).law(np.zeros(4), CONTEXT)


def test_warpers_see_removed_tokens_as_minus_infinity_and_not_when_greedy() -> None:
    seen: list[list[float]] = []

    def warper(ids: Array, scores: Array) -> Array:
        seen.append(scores.tolist()[0])
        return scores * 2

    logits = np.array([1.0, 3.0, 2.0, 2.5])
    law = pipeline(logits_warpers=[warper], temperature=0.5, top_k=2).law(logits, CONTEXT)
    assert seen == [[-INF, 0.0, -INF, -1.0]]
    np.testing.assert_allclose(
        law, [0, 1 / (1 + math.exp(-2)), 0, 1 / (1 + math.exp(2))], rtol=1e-15
    )
    assert pipeline(logits_warpers=[warper], temperature=0).law(logits, CONTEXT).tolist() == [
        0,
        1,
        0,
        0,
    ]
    assert len(seen) == 1
