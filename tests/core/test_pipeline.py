"""LawPipeline: numerics, histories, ties, refusals, and the field's bug reports at the level of laws."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Array
from draftproof.errors import InvalidLogitsError, UsageError

INF = math.inf
CONTEXT = [1, 2, 3]


def pipeline(vocab_size: int = 4, num_prompt_tokens: int = 1, eos: tuple[int, ...] = (), **fields: Any) -> LawPipeline:
    return LawPipeline(
        SamplingParams(max_tokens=None, **fields),
        num_prompt_tokens=num_prompt_tokens,
        vocab_size=vocab_size,
        eos_token_ids=eos,
    )


def logits_of(*probabilities: float) -> Array:
    return np.log(np.array(probabilities))


MAKERS = {
    "numpy float64": lambda values: np.array(values, dtype=np.float64),
    "numpy float32": lambda values: np.array(values, dtype=np.float32),
    "torch float64": lambda values: torch.tensor(values, dtype=torch.float64),
    "torch float32": lambda values: torch.tensor(values, dtype=torch.float32),
    "torch bfloat16": lambda values: torch.tensor(values, dtype=torch.bfloat16),
    "torch float16": lambda values: torch.tensor(values, dtype=torch.float16),
}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())

FIELDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 0.7},
    {"top_k": 3},
    {"top_p": 0.8},
    {"min_p": 0.2},
    {"temperature": 0.6, "top_k": 5, "top_p": 0.9, "min_p": 0.05},
    {"logit_bias": {1: 2.0, 2: -INF}},
    {"repetition_penalty": 1.5, "frequency_penalty": 0.4, "presence_penalty": -0.3},
    {"bad_words_ids": [[3, 0], [1, 2, 3], [4]], "suppress_tokens": [5], "min_tokens": 6, "stop_token_ids": [6]},
    {"allowed_token_ids": [0, 2, 4, 6], "temperature": 1.4, "top_p": 0.7},
    {"logits_processors": [lambda ids, scores: scores + ids.float().mean()], "top_k": 4},
    {"logits_warpers": [lambda ids, scores: scores * 1.5], "top_p": 0.9},
]
any_fields = pytest.mark.parametrize("fields", FIELDS, ids=[", ".join(fields) or "plain" for fields in FIELDS])


@makers
def test_dtypes(make: Any) -> None:
    logits = make([1.0, 2.0, 3.0, -1.0])
    law = pipeline(temperature=0.5).law(logits, CONTEXT)
    wide = logits.dtype in (np.float64, torch.float64)
    expected = torch.float64 if wide else torch.float32
    assert law.dtype == (expected if isinstance(logits, torch.Tensor) else np.float64 if wide else np.float32)
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
    alone = torch.stack([laws.law(row, CONTEXT, path) for row, path in zip(logits, paths, strict=True)])
    assert torch.equal(together, alone)
    committed = torch.stack([laws.law(row, [*CONTEXT, *path]) for row, path in zip(logits, paths, strict=True)])
    assert torch.equal(together, committed)
    tokens = laws.greedy_tokens(logits, CONTEXT, paths)
    assert tokens == [
        laws.greedy_tokens(row[None], [*CONTEXT, *path], [()])[0] for row, path in zip(logits, paths, strict=True)
    ]


@any_fields
def test_numpy_and_torch_agree(fields: dict[str, Any]) -> None:
    laws = pipeline(8, **fields)
    logits = np.random.default_rng(4).standard_normal((50, 8)).round(1)
    paths = [(3, 0)] * 50
    ours, theirs = laws.laws(logits, CONTEXT, paths), laws.laws(torch.from_numpy(logits), CONTEXT, paths).numpy()
    assert ((ours == 0) == (theirs == 0)).all()
    np.testing.assert_allclose(ours, theirs, rtol=1e-15)
    assert laws.greedy_tokens(logits, CONTEXT, paths) == laws.greedy_tokens(torch.from_numpy(logits), CONTEXT, paths)


def test_a_truncated_law_has_the_same_bits_in_numpy_and_torch() -> None:
    logits = np.random.default_rng(4).standard_normal(50_000).astype(np.float32)
    laws = pipeline(50_000, temperature=0.7, top_p=0.9)
    assert (laws.law(logits, CONTEXT) == laws.law(torch.from_numpy(logits), CONTEXT).numpy()).all()


@makers
@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-200, 1e-46, 1e-40, 1e-20, 1e-5])
def test_any_positive_temperature_is_finite_and_shares_between_equal_tops(make: Any, temperature: float) -> None:
    law = pipeline(5, temperature=temperature).law(make([1.0, 3.0, 3.0, 2.0, -INF]), CONTEXT)
    assert law.tolist() == [0, 0.5, 0.5, 0, 0]


@makers
def test_a_huge_temperature_is_uniform_over_what_is_allowed(make: Any) -> None:
    for temperature in (1e20, 1e35, 1e39, 1e100, 1e308):
        law = pipeline(temperature=temperature, suppress_tokens=[2]).law(make([-900.0, 3.0, 5.0, 800.0]), CONTEXT)
        np.testing.assert_allclose(np.asarray(law), [1 / 3, 1 / 3, 0, 1 / 3], rtol=1e-6)


def test_tiny_temperatures_still_tell_tiny_differences_apart() -> None:
    tiny = 5e-324
    law = pipeline(2, temperature=tiny).law(np.array([tiny, 0.0]), CONTEXT)
    np.testing.assert_allclose(law, [1 / (1 + math.exp(-1)), 1 / (1 + math.e)], rtol=1e-12)
    small = np.float32(2.0**-149)
    law = pipeline(2, temperature=2.0**-149).law(np.array([small, 0], dtype=np.float32), CONTEXT)
    np.testing.assert_allclose(law, [1 / (1 + math.exp(-1)), 1 / (1 + math.e)], rtol=1e-6)


def test_large_logits_do_not_overflow() -> None:
    law = pipeline(temperature=0.01).law(np.array([1e38, 1e38, -3e38, 0], dtype=np.float32), CONTEXT)
    assert law.tolist() == [0.5, 0.5, 0, 0]


@makers
def test_greedy_takes_the_lowest_id_among_equal_tops(make: Any) -> None:
    laws = pipeline(temperature=0)
    rows = make([[1.0, 3.0, 3.0, 3.0], [0.0, -0.0, 0.0, -1.0], [-2.0, -3.0, -2.0, -INF]])
    assert laws.greedy
    assert laws.greedy_tokens(rows, CONTEXT, [()] * 3) == [1, 0, 0]
    assert laws.laws(rows, CONTEXT, [()] * 3).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]


def test_reads_history() -> None:
    assert not pipeline(temperature=0.7, top_p=0.9, logit_bias={1: 1.0}, suppress_tokens=[2], bad_words_ids=[[3]]).reads_history
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
@pytest.mark.parametrize("fields", [{}, {"temperature": 0}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}, {"temperature": 0.3}])
@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([1.0, math.nan, 0.0, 0.0], r"row 1, for position 4, hold NaN \(first at token 1\): the model is at fault"),
        ([1.0, 0.0, INF, 0.0], r"row 1, for position 4, hold \+inf \(first at token 2\)"),
        ([-INF] * 4, "row 1, for position 4, are all -inf: the model allows no token"),
    ],
)
def test_invalid_rows_are_named(make: Any, fields: dict[str, Any], values: list[float], what: str) -> None:
    rows = make([[0.0, 1.0, 2.0, 3.0], values])
    laws = pipeline(**fields)
    with pytest.raises(InvalidLogitsError, match=what):
        laws.laws(rows, CONTEXT, [(), (2,)])
    with pytest.raises(InvalidLogitsError, match=what):
        laws.greedy_tokens(rows, CONTEXT, [(), (2,)])
    with pytest.raises(InvalidLogitsError):
        laws.law(rows[1], CONTEXT)


def test_a_row_left_empty_by_bans_is_named_as_such() -> None:
    laws = pipeline(allowed_token_ids=[1, 2], bad_words_ids=[[3, 2]], min_tokens=9, stop_token_ids=[1])
    with pytest.raises(
        InvalidLogitsError, match="position 3, are all -inf after bans and logits processors: no token is allowed"
    ):
        laws.law(np.zeros(4), CONTEXT)
    laws = pipeline(suppress_tokens=[0])
    with pytest.raises(InvalidLogitsError, match="no token is allowed there"):
        laws.law(np.array([0, -INF, -INF, -INF]), CONTEXT)


def test_nan_made_by_a_processor_or_warper_is_named_as_such() -> None:
    def broken(ids: Array, scores: Array) -> Array:
        return scores * math.nan

    with pytest.raises(InvalidLogitsError, match="hold NaN after biases, penalties and logits processors, but not before"):
        pipeline(logits_processors=[broken]).law(np.zeros(4), CONTEXT)
    with pytest.raises(InvalidLogitsError, match="the logits warpers left no token or NaN at position 3"):
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

    with pytest.raises(UsageError, match=r"the logits processor wrong returned .*; allowed: scores of shape \[1, 4\]"):
        pipeline(logits_processors=[wrong]).law(np.zeros(4), CONTEXT)


def test_warpers_see_removed_tokens_as_minus_infinity_and_not_when_greedy() -> None:
    seen: list[list[float]] = []

    def warper(ids: Array, scores: Array) -> Array:
        seen.append(scores.tolist()[0])
        return scores * 2

    logits = np.array([1.0, 3.0, 2.0, 2.5])
    law = pipeline(logits_warpers=[warper], temperature=0.5, top_k=2).law(logits, CONTEXT)
    assert seen == [[-INF, 0.0, -INF, -1.0]]
    np.testing.assert_allclose(law, [0, 1 / (1 + math.exp(-2)), 0, 1 / (1 + math.exp(2))], rtol=1e-15)
    assert pipeline(logits_warpers=[warper], temperature=0).law(logits, CONTEXT).tolist() == [0, 1, 0, 0]
    assert len(seen) == 1


# ---- what the field got wrong, at the level of laws ----


def test_min_p_and_logit_bias_hold_at_every_row_of_a_round() -> None:
    rows = np.tile(logits_of(0.5, 0.3, 0.15, 0.05), (5, 1))
    paths = [(), (0,), (0, 1), (0, 1, 1), (0, 1, 1, 0)]
    laws = pipeline(min_p=0.4).laws(rows, CONTEXT, paths)
    np.testing.assert_allclose(laws, [[0.625, 0.375, 0, 0]] * 5, rtol=1e-12)
    laws = pipeline(logit_bias={0: -100}).laws(rows, CONTEXT, paths)
    np.testing.assert_allclose(laws, [[0, 0.6, 0.3, 0.1]] * 5, atol=1e-12)


@pytest.mark.parametrize(("penalty", "ones"), [(0.25, 5), (0.5, 3)])
def test_a_frequency_penalty_counts_each_drafted_token_once(penalty: float, ones: int) -> None:
    """Token 1 loops at 3.0 beside token 2 at 1.9: the switch comes after the same number of ones for every draft length."""
    row = np.array([0.0, 3.0, 1.9, 0.0])
    laws = pipeline(temperature=0, frequency_penalty=penalty)
    plain = [0]
    for _ in range(ones + 1):
        plain.append(laws.greedy_tokens(row[None], plain, [()])[0])
    assert plain == [0, *[1] * ones, 2]
    for length in (1, 2, 3, 7):
        context = [0]
        while len(context) < len(plain):
            paths = [(1,) * depth for depth in range(length + 1)]
            tokens = laws.greedy_tokens(np.tile(row, (length + 1, 1)), context, paths)
            accepted = next((i for i, token in enumerate(tokens[:-1]) if token != 1), length)
            context += [1] * accepted + [tokens[accepted]]
        assert context[: len(plain)] == plain, length


def test_suppressed_tokens_and_bad_words_have_no_probability_on_drafted_rows() -> None:
    laws = pipeline(10, suppress_tokens=[9], bad_words_ids=[[4, 5]])
    prompt = [1, 2, 9, 4, 5, 1, 2]
    found = laws.laws(np.zeros((3, 10)), prompt, [(), (9,), (9, 4)])
    assert (found[:, 9] == 0).all()
    assert found[:, 5].tolist() == [1 / 9, 1 / 9, 0]
    assert laws.forbids(9, prompt)
    assert laws.forbids(5, prompt, (9, 4))
    assert not laws.forbids(5, prompt, (9,))


# ---- forbids ----


def test_forbids_says_exactly_where_the_law_of_equal_logits_is_zero() -> None:
    dice = random.Random(8)
    for _ in range(200):
        fields: dict[str, Any] = {
            "logit_bias": {t: dice.choice([-INF, 1.0, 0.0]) for t in dice.sample(range(6), 2)},
            "bad_words_ids": [[dice.randrange(6) for _ in range(dice.randint(1, 3))] for _ in range(dice.randint(0, 4))],
            "suppress_tokens": dice.sample(range(6), dice.randint(0, 1)),
            "allowed_token_ids": dice.choice([None, dice.sample(range(6), 5)]),
            "min_tokens": dice.randint(0, 4),
            "stop_token_ids": dice.sample(range(6), dice.randint(0, 1)),
        }
        try:
            laws = pipeline(6, num_prompt_tokens=2, eos=(dice.randrange(6),), **fields)
        except UsageError as error:
            assert "leave no token" in str(error)
            continue
        context = [dice.randrange(6) for _ in range(dice.randint(2, 5))]
        path = tuple(dice.randrange(6) for _ in range(dice.randint(0, 3)))
        forbidden = [laws.forbids(token, context, path) for token in range(6)]
        if all(forbidden):
            with pytest.raises(InvalidLogitsError):
                laws.law(np.zeros(6), context, path)
            continue
        assert (laws.law(np.zeros(6), context, path) == 0).tolist() == forbidden, fields


def test_forbids_ids_that_are_no_tokens() -> None:
    assert pipeline(4).forbids(4, CONTEXT)
    assert pipeline(4).forbids(-1, CONTEXT)
    assert not pipeline(4, logits_processors=[lambda ids, scores: scores - INF]).forbids(0, CONTEXT)


def test_min_tokens_holds_back_eos_and_stop_ids_until_enough_are_generated() -> None:
    laws = pipeline(4, num_prompt_tokens=2, eos=(0, 99), min_tokens=2, stop_token_ids=[3])
    for context, path, held in [([1, 1], (), True), ([1, 1], (1,), True), ([1, 1], (1, 1), False), ([1, 1, 1, 1], (), False)]:
        law = laws.law(np.zeros(4), context, path)
        assert law.tolist() == ([0, 0.5, 0.5, 0] if held else [0.25] * 4)
        assert laws.forbids(0, context, path) is held
        assert laws.forbids(3, context, path) is held


# ---- accelerators: the same on the device's own tensors, without waiting for it ----


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors stay tensors, as they do on an accelerator."""

    def in_memory(logits: Array) -> tuple[Array, bool]:
        wanted = torch.float64 if logits.dtype == torch.float64 else torch.float32
        return logits.to(wanted), logits.dtype == wanted

    monkeypatch.setattr("draftproof.core.pipeline._in_memory", in_memory)


@any_fields
def test_the_accelerated_laws_are_the_same(request: pytest.FixtureRequest, fields: dict[str, Any]) -> None:
    logits = torch.from_numpy(np.random.default_rng(6).standard_normal((40, 8)))
    paths = [(3, 0)] * 20 + [()] * 20
    expected = pipeline(8, **fields).laws(logits, CONTEXT, paths)
    tokens = pipeline(8, **fields).greedy_tokens(logits, CONTEXT, paths)
    request.getfixturevalue("on_device")
    before = logits.clone()
    laws = pipeline(8, **fields)
    found = laws.laws(logits, CONTEXT, paths)
    assert ((found == 0) == (expected == 0)).all()
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)
    assert laws.greedy_tokens(logits, CONTEXT, paths) == tokens
    assert torch.equal(logits, before)
    laws.check()


@pytest.mark.parametrize("fields", [{}, {"temperature": 0}, {"top_k": 2}, {"top_p": 0.5}, {"temperature": 0.3, "min_p": 0.1}])
@pytest.mark.parametrize("bad", [math.nan, INF, -INF])
def test_on_an_accelerator_invalid_rows_are_raised_by_check(on_device: None, fields: dict[str, Any], bad: float) -> None:
    laws = pipeline(**fields)
    row = torch.full((4,), bad if bad == -INF else 0.0)
    row[2] = bad
    laws.law(row, CONTEXT)
    laws.law(torch.zeros(4), CONTEXT)
    with pytest.raises(InvalidLogitsError, match="holds NaN or infinity, or allows no token"):
        laws.check()
    laws.check()
    laws.law(torch.zeros(4), CONTEXT)
    laws.check()
    with pytest.raises(InvalidLogitsError, match="row 0, for position 3"):
        laws.greedy_tokens(row[None], CONTEXT, [()])
