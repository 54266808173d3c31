"""Log-probabilities are the target's own, before processing, for every emitted token."""

from __future__ import annotations

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.core.records import Round
from tiny import fresh_logits, llama


def kept_later_siblings(record: Round) -> bool:
    """Whether the accepted path leaves the branch of first children."""
    first = [
        min(n for n, parent in enumerate(record.draft_parents) if parent == above)
        for above in record.draft_parents
    ]
    path, above = [], -1
    for token in record.tokens[: record.num_accepted_tokens]:
        above = next(
            n
            for n, parent in enumerate(record.draft_parents)
            if parent == above and record.draft_tokens[n] == token
        )
        path.append(above)
    return any(node != first[node] for node in path)


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("draft", ["same", "noisy", "ngram", "tree"])
def test_logprobs_of_drafted_replaced_and_bonus_tokens(draft, temperature):
    """llama.cpp#27972, vllm#17876: zeros or another row's values, with speculation only. In a tree
    the row of an accepted token is that of its parent, not of the node before it."""
    module = llama(torch.float32)
    model = {
        "same": module,
        "noisy": llama(torch.float32, num_hidden_layers=1),
        "ngram": None,
        "tree": module,
    }[draft]
    config = (
        {"tree": "3,2,1", "model": "M", "rule": "match"}
        if draft == "tree"
        else {"num_speculative_tokens": 4}
    )
    config |= {"method": "ngram"} if model is None else {}
    made = SpeculativeDecoder(model, module, speculative_config=config)
    prompt = [1, 2, 3, 1, 2]
    params = SamplingParams(
        temperature=temperature,
        top_p=0.95,
        repetition_penalty=1.1,
        max_tokens=24,
        seed=4,
        logprobs=3,
    )
    result = made.generate(prompt, params)
    expected = torch.log_softmax(
        fresh_logits(module, [*prompt, *result.token_ids])[len(prompt) - 1 : -1].double(), -1
    )
    assert len(result.logprobs) == len(result.token_ids) == 24
    if draft == "tree" and temperature:
        assert any(kept_later_siblings(record) for record in result.rounds), (
            "every path was the first branch"
        )
    for row, token, entry in zip(expected, result.token_ids, result.logprobs, strict=True):
        assert entry.token_id == token
        assert entry.logprob == pytest.approx(float(row[token]), abs=1e-4)
        assert entry.rank == 1 + int((row > row[token]).sum())
        assert [i for i, _ in entry.top] == row.topk(3).indices.tolist()
        assert [value for _, value in entry.top] == pytest.approx(
            row.topk(3).values.tolist(), abs=1e-4
        )


def test_logprobs_end_with_the_text():
    module = llama(torch.float64)
    made = SpeculativeDecoder(module, module, speculative_config={"num_speculative_tokens": 8})
    free = made.generate([1, 2], SamplingParams(temperature=0, max_tokens=12)).token_ids
    stop = next(token for token in free if free.index(token) >= 3)
    cut = made.generate(
        [1, 2], SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[stop], logprobs=0)
    )
    assert len(cut.logprobs) == len(cut.token_ids) == free.index(stop) + 1
    assert all(entry.top == () for entry in cut.logprobs)


@pytest.mark.parametrize("size", [1, 2, 300])
def test_prompt_logprobs(size):
    module = llama(torch.float32, max_position_embeddings=512)
    prompt = [(11 * i + 3) % 64 for i in range(size)]
    made = SpeculativeDecoder(None, module, speculative_config={"method": "ngram"})
    params = SamplingParams(temperature=0, max_tokens=3, prompt_logprobs=2)
    result = made.generate(prompt, params)
    expected = torch.log_softmax(fresh_logits(module, prompt).double(), -1)
    assert result.prompt_logprobs[0] is None
    assert len(result.prompt_logprobs) == size
    for position in range(1, size):
        entry, row = result.prompt_logprobs[position], expected[position - 1]
        assert entry.token_id == prompt[position]
        assert entry.logprob == pytest.approx(float(row[prompt[position]]), abs=1e-4)
    assert (
        result.token_ids
        == made.generate(prompt, SamplingParams(temperature=0, max_tokens=3)).token_ids
    )
    plain = made.plain.generate(prompt, params)
    assert [e and (e.token_id, e.rank) for e in plain.prompt_logprobs] == [
        e and (e.token_id, e.rank) for e in result.prompt_logprobs
    ]
