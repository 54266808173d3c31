"""The whole decode loop over OpenVINO's passes: its law, and speculative text that is the plain
one."""

from __future__ import annotations

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.models.openvino.rows import IDENTICAL, check_rows
from openvino_models import openvino

CONFIGS = [
    {"method": "ngram", "num_speculative_tokens": 4},
    {"method": "suffix", "num_speculative_tokens": 4},
    {"method": "recycling"},
    {"method": "lookahead"},
]
PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2], [9] * 12]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"], indirect=True)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["method"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_speculative_text_is_plain_text(dtype, config, temperature):
    """Rows are the same bits, so greedy and `match` give the same tokens in every precision."""
    target = openvino("qwen2", dtype, max_length=128)
    rule = {"rule": "match"} if temperature else {}
    decoder = SpeculativeDecoder(None, target, speculative_config={**config, **rule})
    params = SamplingParams(max_tokens=40, temperature=temperature, seed=3)
    expected = [decoder.plain.generate(prompt, params).token_ids for prompt in PROMPTS]
    assert [decoder.generate(prompt, params).token_ids for prompt in PROMPTS] == expected
    assert [result.token_ids for result in decoder.generate(PROMPTS, params)] == expected


def test_a_draft_model_and_a_tree_of_it_on_the_same_engine():
    target, draft = openvino("llama"), openvino("qwen2")
    params = SamplingParams(max_tokens=24, temperature=0.0)
    for tree in (None, "2,2,1"):
        decoder = SpeculativeDecoder(
            draft, target, speculative_config={"num_speculative_tokens": 3, "tree": tree}
        )
        assert (
            decoder.generate(PROMPTS[0], params).token_ids
            == decoder.plain.generate(PROMPTS[0], params).token_ids
        )


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
def test_rows_are_found_identical_and_told(name):
    model = openvino(name)
    model.rows = check_rows(model)
    assert model.rows == IDENTICAL
    decoder = SpeculativeDecoder(None, model, speculative_config={"method": "ngram"})
    result = decoder.generate([1, 2, 1], SamplingParams(max_tokens=4))
    assert result.stats.rows == result.stats.as_dict()["rows"] == IDENTICAL


def test_rows_that_differ_are_said_with_what_and_by_how_much(monkeypatch):
    model = openvino("llama")
    read = model._passes.read

    def mixing(lines, rows, hidden):
        logits, states = read(lines, rows, hidden)
        return logits + 0.25 * (sum(len(line.tokens) for line in lines) > 2), states

    monkeypatch.setattr(model._passes, "read", mixing)
    assert check_rows(model) == "rows read one by one: logits differ by up to 0.25"


def test_hidden_states_do_not_change_the_bits():
    """Asking for them compiles the graph anew, with more outputs."""
    model = openvino("llama")
    from draftproof.models.protocol import Step, extend

    before = extend(Step(model.open(), [1, 2, 3, 4])).logits
    with_states = extend(Step(model.open(), [1, 2, 3, 4], hidden=(0, 1))).logits
    assert torch.equal(before, with_states)
