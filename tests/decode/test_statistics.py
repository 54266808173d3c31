"""Counts and rates, by hand: the definitions are vLLM's, and every report uses this one module."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.records import Round, Seconds
from draftproof.decode.statistics import statistics
from tiny import llama, word_tokenizer

CYCLE = [[1.0 if j == (i + 1) % 16 else 0.0 for j in range(16)] for i in range(16)]


def round_of(drafted: int, accepted: int, bonus: bool = True) -> Round:
    """A chain round: `accepted` of `drafted` kept, then a bonus or a replacement."""
    last = "bonus" if accepted == drafted else "replacement"
    return Round(
        start=0,
        draft_tokens=tuple(range(drafted)),
        draft_parents=tuple(range(-1, drafted - 1)),
        tokens=tuple(range(accepted + bonus)),
        origins=("draft",) * accepted + ((last,) if bonus else ()),
        num_accepted_tokens=accepted,
        reached=min(accepted + 1, drafted),
        seconds=Seconds(draft=0.1, draft_forward=0.05, verify=0.2, rest=0.01),
    )


def test_the_worked_example():
    """vllm#17908: 5 rounds, 2 drafts each, accepted 2, 1, 0, 2, 1."""
    stats = statistics([round_of(2, a) for a in (2, 1, 0, 2, 1)])
    assert (stats.num_draft_tokens, stats.num_accepted_tokens, stats.num_emitted_tokens) == (
        10,
        6,
        11,
    )
    assert stats.draft_acceptance_rate == pytest.approx(0.6)
    assert stats.mean_acceptance_length == pytest.approx(2.2)
    assert stats.tokens_per_round == pytest.approx(2.2)
    assert stats.num_bonus_tokens == 2
    assert stats.acceptance_per_position == {
        "marginal": pytest.approx((4 / 5, 2 / 5)),
        "conditional": pytest.approx((4 / 5, 2 / 4)),
    }


def test_rounds_without_a_draft_lower_tokens_per_round_and_nothing_else():
    """llama.cpp#3919: acceptance stays at 100% because only sure tokens are ever proposed."""
    plain = Round(0, (), (), (1,), ("plain",), 0, 0)
    stats = statistics([round_of(1, 1)] + [plain] * 9)
    assert stats.draft_acceptance_rate == 1.0
    assert stats.mean_acceptance_length == 2.0
    assert stats.share_of_rounds_with_draft == pytest.approx(0.1)
    assert stats.tokens_per_round == pytest.approx(1.1)


def test_rates_without_a_denominator_are_none():
    stats = statistics([])
    assert (
        stats.draft_acceptance_rate,
        stats.mean_acceptance_length,
        stats.tokens_per_round,
        stats.alpha,
    ) == (None,) * 4


def test_accepted_drafts_behind_a_stop_are_counted_apart():
    """All 8 drafts are accepted and the third ends the text, by a stop string. vLLM counts what the
    rule accepted, before it looks for an end: 8, and a mean acceptance length of 9. Of these 3 are
    kept, and 3 is what the round emitted."""
    model = TableModel(CYCLE)
    made = SpeculativeDecoder(
        model, model, word_tokenizer(16), speculative_config={"num_speculative_tokens": 8}
    )
    stats = made.generate([0], SamplingParams(temperature=0, max_tokens=12, stop="w3")).stats
    assert (stats.num_drafts, stats.num_accepted_tokens, stats.num_kept_tokens) == (1, 8, 3)
    assert (stats.num_emitted_tokens, stats.num_bonus_tokens) == (3, 0)
    assert (stats.mean_acceptance_length, stats.mean_kept_length, stats.draft_acceptance_rate) == (
        9.0,
        3.0,
        1.0,
    )
    assert stats.num_accepted_tokens_per_pos == (1,) * 8
    assert stats.num_kept_tokens_per_pos == stats.num_reached_tokens_per_pos == (1,) * 3 + (0,) * 5
    assert stats.acceptance_per_position["conditional"] == (1.0,) * 3 + (None,) * 5


def test_nothing_is_drafted_behind_an_end_token():
    """vLLM's mean acceptance length counts a bonus that an end leaves out; what was kept stands
    beside it."""
    model = TableModel(CYCLE)
    made = SpeculativeDecoder(model, model, speculative_config={"num_speculative_tokens": 8})
    stats = made.generate(
        [0], SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[3])
    ).stats
    assert (stats.num_draft_tokens, stats.num_accepted_tokens, stats.num_kept_tokens) == (3, 3, 3)
    assert (stats.mean_acceptance_length, stats.mean_kept_length, stats.num_emitted_tokens) == (
        4.0,
        3.0,
        3,
    )


def test_the_stats_of_several_samples_are_totals():
    rows = [[0.1 + 0.5 * (j == (i + 1) % 6) for j in range(6)] for i in range(6)]
    model = TableModel([[x / sum(row) for x in row] for row in rows])
    made = SpeculativeDecoder(model, model, speculative_config={"num_speculative_tokens": 3})
    params = SamplingParams(max_tokens=20, stop_token_ids=[5], n=3, seed=2)
    for result in (
        made.generate([0], params),
        made.plain.generate([0], params),
        last(made.stream([0], params)),
    ):
        assert len({len(output.token_ids) for output in result.outputs}) > 1
        for name in (
            "num_rounds",
            "num_draft_tokens",
            "num_accepted_tokens",
            "num_kept_tokens",
            "num_emitted_tokens",
        ):
            assert getattr(result.stats, name) == sum(
                getattr(output.stats, name) for output in result.outputs
            ), name
        assert result.stats.num_emitted_tokens == sum(
            len(output.token_ids) for output in result.outputs
        )


def last(stream):
    while True:
        try:
            next(stream)
        except StopIteration as done:
            return done.value


def test_a_note_stands_once_with_the_number_of_its_rounds():
    """A drafter whose every law is NaN said so in 299 notes, one for every position."""
    broken = TableModel(lambda prefix: np.full(16, np.nan), vocab_size=16)
    target = TableModel([[1 / 16] * 16] * 16)
    made = SpeculativeDecoder(broken, target, speculative_config={"num_speculative_tokens": 2})
    stats = made.generate([2], SamplingParams(max_tokens=30, n=2, seed=0)).stats
    assert stats.num_invalid_draft_laws == 58  # there is no room for a draft before the last token
    assert stats.notes == (
        "draft ended early: the logits hold NaN: the model is at fault (58 rounds)",
    )
    assert made.generate([2], SamplingParams(max_tokens=2, seed=0)).stats.notes == (
        "draft ended early: the logits hold NaN: the model is at fault",
    )


def test_seconds_add_up_and_the_prompt_is_apart():
    module = llama(torch.float32)
    made = SpeculativeDecoder(module, module, speculative_config={"num_speculative_tokens": 3})
    result = made.generate([1, 2, 3, 4], SamplingParams(temperature=0, max_tokens=30))
    stats = result.stats
    assert [r.reads_prompt for r in result.rounds] == [True] + [False] * (len(result.rounds) - 1)
    parts = stats.prompt_seconds + stats.draft_seconds + stats.verify_seconds + stats.rest_seconds
    assert 0 < parts <= result.seconds
    assert 0 < stats.draft_forward_seconds <= stats.draft_seconds
    assert 0 < result.outputs[0].first_token_seconds <= result.seconds


def test_the_dictionary_has_the_documented_names():
    keys = set(statistics([round_of(2, 1)]).as_dict())
    assert {
        "num_rounds",
        "num_drafts",
        "num_draft_tokens",
        "num_accepted_tokens",
        "num_emitted_tokens",
        "draft_acceptance_rate",
        "mean_acceptance_length",
        "tokens_per_round",
        "acceptance_per_position",
        "alpha",
        "method",
        "rule",
        "lossless",
        "num_kept_tokens",
        "mean_kept_length",
        "num_accepted_tokens_per_pos",
    } <= keys
