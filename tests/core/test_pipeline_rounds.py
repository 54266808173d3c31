"""LawPipeline on the rows of a round: the field's bug reports at the level of laws, what it
forbids, and accelerators."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from draftproof.core.records import Array
from draftproof.errors import InvalidLogitsError, UsageError
from pipelines import CONTEXT, INF, any_fields, logits_of, pipeline

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
    """Token 1 loops at 3.0 beside token 2 at 1.9: the switch comes after the same number of ones
    for every draft length."""
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


def test_a_bad_word_of_three_tokens_ends_after_its_first_two_alone() -> None:
    laws = pipeline(10, bad_words_ids=[[3, 4, 5]])
    paths = [(), (4,), (3, 4), (3,), (9, 4)]
    assert (laws.laws(np.zeros((5, 10)), [1, 2], paths)[:, 5] == 0).tolist() == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert [laws.forbids(5, [1, 2], path) for path in paths] == [False, False, True, False, False]
    assert laws.forbids(5, [1, 3], (4,)) and not laws.forbids(5, [3, 1], (4,))


# ---- forbids ----


def test_forbids_says_exactly_where_the_law_of_equal_logits_is_zero() -> None:
    dice = random.Random(8)
    for _ in range(200):
        fields: dict[str, Any] = {
            "logit_bias": {t: dice.choice([-INF, 1.0, 0.0]) for t in dice.sample(range(6), 2)},
            "bad_words_ids": [
                [dice.randrange(6) for _ in range(dice.randint(1, 3))]
                for _ in range(dice.randint(0, 4))
            ],
            "suppress_tokens": dice.sample(range(6), dice.randint(0, 1)),
            "allowed_token_ids": dice.choice([None, dice.sample(range(6), 5)]),
            "min_tokens": dice.randint(0, 4),
            "stop_token_ids": dice.sample(range(6), dice.randint(0, 1)),
        }
        try:
            laws = pipeline(6, num_prompt_tokens=2, eos=(dice.randrange(6),), **fields)
        except UsageError as error:
            assert "leave no token" in str(
                error
            ) or "every token left to sample ends the text" in str(error)
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
    for context, path, held in [
        ([1, 1], (), True),
        ([1, 1], (1,), True),
        ([1, 1], (1, 1), False),
        ([1, 1, 1, 1], (), False),
    ]:
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
def test_the_accelerated_laws_are_the_same(
    request: pytest.FixtureRequest, fields: dict[str, Any]
) -> None:
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


@pytest.mark.parametrize(
    "fields",
    [{}, {"temperature": 0}, {"top_k": 2}, {"top_p": 0.5}, {"temperature": 0.3, "min_p": 0.1}],
)
@pytest.mark.parametrize("bad", [math.nan, INF, -INF])
def test_on_an_accelerator_invalid_rows_are_raised_by_check(
    on_device: None, fields: dict[str, Any], bad: float
) -> None:
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
