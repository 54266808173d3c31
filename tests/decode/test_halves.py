"""A shared pass that fails half-way, some sessions longer already, is done again from where every
session stood."""

from __future__ import annotations

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from tiny import llama

PROMPTS = [[5, 9, 2], [1, 2, 3, 1, 2], [7, 7, 7, 7], [40, 3]]
LAWS = [[0.6 if j == (i + 1) % 8 else 0.4 / 7 for j in range(8)] for i in range(8)]


def failing_halfway(model):
    """`model`, whose passes over several sequences read the first of them and then find no memory.
    Returns how often."""
    failed, extend_many = [], model.extend_many

    def extend(steps):
        if len(steps) > 1:
            extend_many(steps[:1])
            failed.append(len(steps))
            raise MemoryError
        return extend_many(steps)

    model.extend_many = extend
    return failed


@pytest.mark.parametrize("fails", ["target", "draft", "both"])
@pytest.mark.parametrize("kind", ["transformers", "table"])
def test_rows_are_their_solo_runs(kind, fails):
    if kind == "table":
        target, draft = TableModel(LAWS), TableModel(LAWS)
        prompts = [[token % 8 for token in prompt] for prompt in PROMPTS]
    else:
        target, draft, prompts = llama(torch.float64), llama(torch.float64, seed=1), PROMPTS
    decoder = SpeculativeDecoder(draft, target, speculative_config={"num_speculative_tokens": 3})
    params = [SamplingParams(max_tokens=9, seed=seed) for seed in range(len(prompts))]
    solo = [
        decoder.generate(prompt, one).token_ids for prompt, one in zip(prompts, params, strict=True)
    ]
    models = {"target": [decoder.target], "draft": [decoder.drafter.model]}.get(
        fails, [decoder.target, decoder.drafter.model]
    )
    failed = [failing_halfway(model) for model in models]
    assert [result.token_ids for result in decoder.generate(prompts, params, batch_size=4)] == solo
    assert all(4 in sizes and 2 in sizes for sizes in failed)
