"""Repetition, presence and frequency penalties against their formulas, and counts that follow any
change of context."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from draftproof.core.history import History
from draftproof.core.params import SamplingParams
from draftproof.core.penalties import Penalties
from draftproof.core.records import Array


def penalised_by_formula(
    row: Array, params: SamplingParams, prompt: Sequence[int], generated: Sequence[int]
) -> Array:
    """As vLLM and the OpenAI API write it: repetition over both, the other two over the generated
    tokens."""
    row = row.copy()
    for token in {*prompt, *generated}:
        if token < len(row):
            row[token] = (
                row[token] * params.repetition_penalty
                if row[token] < 0
                else row[token] / params.repetition_penalty
            )
    for token, count in Counter(generated).items():
        if token < len(row):
            row[token] = row[token] - params.frequency_penalty * count
            row[token] = row[token] - params.presence_penalty * (count > 0)
    return row


PARAMS = [
    SamplingParams(repetition_penalty=1.3),
    SamplingParams(repetition_penalty=0.7),
    SamplingParams(presence_penalty=0.6),
    SamplingParams(presence_penalty=-1.5, frequency_penalty=2.0),
    SamplingParams(frequency_penalty=-0.25),
    SamplingParams(repetition_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.3),
]


@pytest.mark.parametrize("params", PARAMS, ids=range(len(PARAMS)))
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_every_row_is_penalised_by_its_own_history(params: SamplingParams, library: str) -> None:
    dice, rng = random.Random(3), np.random.default_rng(3)
    penalties = Penalties(params, num_prompt_tokens=4, vocab_size=9)
    context = [dice.randrange(11) for _ in range(4)]
    for _ in range(60):
        # something else than growth: another request's context, or one cut short
        if dice.random() < 0.2:
            context = context[: dice.randint(4, len(context))] + [
                dice.randrange(11) for _ in range(dice.randint(0, 3))
            ]
        # 9 and 10 have no row in the output layer
        context += [dice.randrange(11) for _ in range(dice.randint(0, 2))]
        paths = [tuple(dice.randrange(11) for _ in range(depth)) for depth in (0, 1, 2, 5)]
        x = rng.standard_normal((4, 9))
        expected = [
            penalised_by_formula(row, params, context[:4], [*context[4:], *path])
            for row, path in zip(x, paths, strict=True)
        ]
        given = torch.from_numpy(x.copy()) if library == "torch" else x.copy()
        penalties.apply(given, context, paths)
        np.testing.assert_array_equal(np.asarray(given), expected)


def test_nothing_is_active_by_default() -> None:
    assert not Penalties(SamplingParams(), 1, 5).active
    assert all(Penalties(params, 1, 5).active for params in PARAMS)


@pytest.mark.parametrize("kind", [list, tuple])
def test_counts_follow_any_sequence_of_contexts(kind: type) -> None:
    dice = random.Random(4)
    history = History(num_prompt_tokens=3, vocab_size=6)
    context: list[int] = []
    for _ in range(400):
        match dice.randrange(5):
            case 0:
                context = [dice.randrange(8) for _ in range(dice.randrange(8))]
            case 1:
                context = context[: dice.randint(0, len(context))]
            case 2 if context:
                context[dice.randrange(len(context))] = dice.randrange(8)
            case _:
                context = [*context, dice.randrange(8)]
        history.sync(kind(context))
        assert history.seen == Counter(t for t in context if t < 6)
        assert history.generated == Counter(t for t in context[3:] if t < 6)
        x = np.zeros((1, 6), dtype=np.float32)
        counts = dict(
            zip(
                history.generated_ids(x).tolist(), history.generated_counts(x).tolist(), strict=True
            )
        )
        assert counts == history.generated
        assert sorted(history.seen_ids(x).tolist()) == sorted(history.seen)


def test_a_growing_context_is_counted_by_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    count = History._count

    def spy(self: History, position: int, token: int, step: int) -> None:
        counted.append(position)
        count(self, position, token, step)

    monkeypatch.setattr(History, "_count", spy)
    history = History(num_prompt_tokens=3, vocab_size=6)
    context = [1, 2, 3]
    history.sync(context)
    context += [4, 5]
    history.sync(context)
    history.sync(context)
    assert counted == [0, 1, 2, 3, 4]
    assert history.seen_ids(np.zeros(1)) is history.seen_ids(np.zeros(1))
