"""Sampling parameters hold at every drafted position: the text is the one plain decoding gives
under the same parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.drafting import PlannedDrafter
from sampling import assert_same_law, exact_law
from tiny import llama

LENGTHS = [1, 2, 3, 7]


def looping(size: int = 16) -> TableModel:
    """After 1 comes 1 (logit 3.0), then 2 (1.9), then nothing likely; after 2 comes 2."""
    logits = np.zeros((size, size))
    logits[1, 1], logits[1, 2], logits[2, 2] = 3.0, 1.9, 3.0
    laws = np.exp(logits)
    return TableModel(laws / laws.sum(axis=1, keepdims=True))


def both(model, params: SamplingParams, prompt, **config):
    made = SpeculativeDecoder(
        model, model, speculative_config={"num_speculative_tokens": 4} | config
    )
    return made.generate(prompt, params), made.plain.generate(prompt, params)


@pytest.mark.parametrize("temperature", [0, 0.004])
@pytest.mark.parametrize("shape", [*LENGTHS, "2,2,1"])
@pytest.mark.parametrize("penalty, ones", [(0.25, 5), (0.5, 3)])
def test_frequency_penalty_counts_every_drafted_token_once(penalty, ones, shape, temperature):
    """vllm#18902 (no effect), vllm#33251 (counted twice from the second drafted position on).

    1 leads 2 by 1.1: with .25 a token it falls behind after the fifth 1, with .5 after the third.
    In a tree 2 hangs beside every 1, and is not on its path. At T = .004, where laws are made, a
    lead of .1 is lost once in 1e10 draws."""
    params = SamplingParams(
        temperature=temperature, max_tokens=8, frequency_penalty=penalty, seed=0
    )
    tree = {
        "method": "draft_model",
        "tree": shape,
        "draft_sample_method": "greedy",
        "num_speculative_tokens": None,
    }
    drafted, plain = both(
        looping(), params, [1], **(tree if shape == "2,2,1" else {"num_speculative_tokens": shape})
    )
    assert drafted.token_ids == plain.token_ids
    assert drafted.token_ids[: ones + 1] == (1,) * ones + (2,)
    assert drafted.stats.num_draft_tokens > 0


PARAMETERS = [
    {"presence_penalty": 0.9},
    {"frequency_penalty": 0.4},
    {"repetition_penalty": 1.3},
    {"logit_bias": {5: 3.0, 7: -100.0}},
    {"suppress_tokens": [3, 9, 12]},
    {"allowed_token_ids": list(range(20))},
    {"bad_words_ids": [[4, 5], [9]]},
    {"min_tokens": 5, "stop_token_ids": list(range(32))},
    {"top_k": 3},
    {"top_p": 0.8},
    {"min_p": 0.2},
    {"repetition_penalty": 1.2, "frequency_penalty": 0.2, "top_p": 0.9, "logit_bias": {1: 1.0}},
]


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("given", PARAMETERS, ids=str)
@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_text_under_parameters_is_plain_decodings(method, given, temperature):
    """Greedy and, with `match`, sampled with a seed: token for token."""
    module = llama(torch.float64)
    draft = llama(torch.float64, seed=0, num_hidden_layers=1) if method == "draft_model" else None
    config = {"num_speculative_tokens": 5, "rule": "match"} | (
        {"method": "ngram"} if draft is None else {}
    )
    made = SpeculativeDecoder(draft, module, speculative_config=config)
    params = SamplingParams(temperature=temperature, max_tokens=24, seed=11, **given)
    prompt = [1, 2, 9, 4, 5, 1, 2]
    result, plain = made.generate(prompt, params), made.plain.generate(prompt, params)
    assert result.token_ids == plain.token_ids
    assert result.finish_reason == plain.finish_reason


def test_min_p_and_bias_hold_at_every_position():
    """vllm#42744: applied to the bonus only. min_p .4 leaves A and B at .625 and .375; then a ban
    of A."""
    row = [0.5, 0.3, 0.15, 0.05] + [0.0] * 12
    model = TableModel([row] * 16)
    uniform = TableModel([[1 / 16] * 16] * 16)
    made = SpeculativeDecoder(uniform, model, speculative_config={"num_speculative_tokens": 4})
    law = exact_law(made, [0], 2, max_tokens=3, min_p=0.4)
    single = {0: 0.625, 1: 0.375}
    assert_same_law(law, {(a, b): single[a] * single[b] for a in single for b in single}, 1e-12)
    banned = exact_law(made, [0], 2, max_tokens=3, logit_bias={0: -float("inf")})
    assert all(0 not in tokens for tokens in banned)


def test_a_looked_up_draft_stops_before_a_forbidden_token():
    """transformers#40726: prompt lookup proposed what the parameters forbid."""
    module = llama(torch.float64)
    made = SpeculativeDecoder(
        None, module, speculative_config={"method": "ngram", "num_speculative_tokens": 6}
    )
    params = SamplingParams(
        temperature=0, max_tokens=20, suppress_tokens=[9], bad_words_ids=[[4, 5]]
    )
    result = made.generate([1, 2, 9, 4, 5, 1, 2], params)
    assert result.token_ids == made.plain.generate([1, 2, 9, 4, 5, 1, 2], params).token_ids
    assert all(9 not in record.draft_tokens for record in result.rounds)
    pairs = [
        (a, b) == (4, 5)
        for record in result.rounds
        for a, b in zip(record.draft_tokens, record.draft_tokens[1:], strict=False)
    ]
    assert not any(pairs)


class DigitsAfterMarker:
    """A constraint that switches on inside a block: only tokens below 10 once token 50 was seen."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if not (input_ids == 50).any():
            return scores
        scores = scores.clone()
        scores[:, 10:] = -float("inf")
        return scores


@pytest.mark.parametrize("place", range(6))
def test_a_constraint_that_begins_inside_a_block_holds_from_there(place):
    """vllm#36138: drafts behind the marker escaped the constraint."""
    rows = np.full((64, 64), 1e-4)
    for token in range(20, 50):
        rows[token, token + 1] = 1.0
    rows[50, 30:40] = 1.0
    model = TableModel(rows / rows.sum(axis=1, keepdims=True))
    made = SpeculativeDecoder(model, model, speculative_config={"num_speculative_tokens": 6})
    for seed in range(5):
        params = SamplingParams(
            max_tokens=14, seed=seed, top_k=12, logits_processors=[DigitsAfterMarker()]
        )
        tokens = made.generate([49 - place], params).token_ids
        if 50 in tokens:
            after = tokens[tokens.index(50) + 1 :]
            assert after and all(token < 10 for token in after)


@pytest.mark.parametrize("method", ["ngram", "draft_model"])
@pytest.mark.parametrize("row", ["nan", "all -inf"])
def test_a_target_without_a_law_is_an_error_by_name(method, row):
    from draftproof.errors import InvalidLogitsError

    model = broken_after(5, row)
    draft = TableModel([[1 / 16] * 16] * 16) if method == "draft_model" else None
    made = SpeculativeDecoder(
        draft,
        model,
        speculative_config={"method": method, "num_speculative_tokens": 3, "model": draft and "d"},
    )
    for temperature in (0, 1):
        with pytest.raises(InvalidLogitsError, match="nan|NaN|-inf"):
            made.generate([4], SamplingParams(max_tokens=8, seed=0, temperature=temperature))


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("row", ["nan", "all -inf"])
def test_a_drafter_without_a_law_costs_a_draft_and_is_counted(row, temperature):
    target = TableModel([[1.0 if j == (i + 1) % 16 else 0.0 for j in range(16)] for i in range(16)])
    made = SpeculativeDecoder(
        broken_after(5, row), target, speculative_config={"num_speculative_tokens": 4}
    )
    result = made.generate([2], SamplingParams(max_tokens=8, seed=0, temperature=temperature))
    assert result.token_ids == tuple(range(3, 11))
    assert result.stats.num_invalid_draft_laws > 0
    assert any("ended early" in note for note in result.stats.notes)


def broken_after(token: int, kind: str) -> TableModel:
    """Token i is followed by i + 1, but after `token` there is no law."""

    def law(prefix):
        if prefix[-1] == token:
            return np.full(16, np.nan if kind == "nan" else 0.0)
        return np.eye(16)[(prefix[-1] + 1) % 16]

    return TableModel(law, vocab_size=16)


@pytest.mark.parametrize("rule", ["match", "token", "block"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_dead_end_behind_a_rejected_draft_is_no_error(rule, temperature):
    """A row the text never reaches may allow no token at all: after 2 comes 3, which is banned, and
    2 itself never comes."""
    rows = [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 1.0], [0.5, 0.5, 0, 0]]
    guess = PlannedDrafter("always 2", lambda context, path: 2)
    made = SpeculativeDecoder(
        guess, TableModel(rows), speculative_config={"num_speculative_tokens": 3, "rule": rule}
    )
    params = SamplingParams(max_tokens=12, seed=3, temperature=temperature, suppress_tokens=[3])
    result = made.generate([0], params)
    assert len(result.token_ids) == 12
    assert set(result.token_ids) <= {0, 1}
    if rule == "match" or temperature == 0:
        assert result.token_ids == made.plain.generate([0], params).token_ids


@pytest.mark.parametrize("rule", ["match", "token", "block"])
def test_a_processor_that_knows_no_way_on_is_asked_in_vain_only_where_the_text_goes(rule):
    def even_then_odd(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        tokens = input_ids[0].tolist()
        if any(token % 2 != place % 2 for place, token in enumerate(tokens)):
            raise KeyError(tokens[-1])
        scores = scores.clone()
        scores[:, (len(tokens) + 1) % 2 :: 2] = -float("inf")
        return scores

    module = llama(torch.float64)
    guess = PlannedDrafter(
        "wrong parity", lambda context, path: (len(context) + len(path) + 1) % 2 + 2
    )
    made = SpeculativeDecoder(
        guess, module, speculative_config={"num_speculative_tokens": 3, "rule": rule}
    )
    for temperature in (0, 1):
        params = SamplingParams(
            max_tokens=10, seed=1, temperature=temperature, logits_processors=[even_then_odd]
        )
        tokens = made.generate([0, 1], params).token_ids
        assert [token % 2 for token in tokens] == [place % 2 for place in range(10)]
