"""Counts and rates, by hand: the definitions are vLLM's, and every report uses this one module."""

from __future__ import annotations

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.records import Round, Seconds
from draftproof.decode.statistics import statistics
from tiny import llama


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
    assert (stats.num_draft_tokens, stats.num_accepted_tokens, stats.num_emitted_tokens) == (10, 6, 11)
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
    assert (stats.draft_acceptance_rate, stats.mean_acceptance_length, stats.tokens_per_round, stats.alpha) == (None,) * 4


def test_accepted_drafts_behind_a_stop_do_not_count():
    """A peer counted drafts that the limit had cut off."""
    model = TableModel([[1.0 if j == (i + 1) % 16 else 0.0 for j in range(16)] for i in range(16)])
    made = SpeculativeDecoder(model, model, speculative_config={"num_speculative_tokens": 8})
    result = made.generate([0], SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[3]))
    assert result.stats.num_accepted_tokens == 3
    assert result.stats.num_emitted_tokens == 3
    assert result.stats.num_bonus_tokens == 0


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
        "num_rounds", "num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_emitted_tokens", "draft_acceptance_rate",
        "mean_acceptance_length", "tokens_per_round", "acceptance_per_position", "alpha", "method", "rule", "lossless",
    } <= keys  # fmt: skip
