"""Prompts read in pieces before the first round: the drafts and the text are as when read at
once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.decode.engine import Engine
from draftproof.decode.result import Update
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.medusa import Medusa
from draftproof.drafters.ngram import NGram
from draftproof.drafters.recycling import Recycling
from random_heads import VOCAB, random_head, random_state

PROMPTS = [[1, 2, 3, 4, 5, 6, 7] * 4, [0, 1], [5, 5, 3] * 7]
DRAFTERS: dict[str, Callable[[], Any]] = {
    "medusa": lambda: Medusa(random_head("medusa")),
    "eagle": lambda: Eagle(random_head("eagle")),
    "eagle3": lambda: Eagle(random_head("eagle3"), name="eagle3"),
    "ngram": lambda: NGram(3, 1),
    "recycling": lambda: Recycling(8, 3),
}


def make(name: str) -> SpeculativeDecoder:
    laws = np.random.default_rng(0).dirichlet(np.ones(VOCAB), size=VOCAB)
    target = TableModel(laws, hidden=random_state, max_length=200)
    return SpeculativeDecoder(
        DRAFTERS[name](), target, speculative_config={"num_speculative_tokens": 3}
    )


def engine_of(
    decoder: SpeculativeDecoder, params: SamplingParams, heard: list[list[Update]]
) -> Engine:
    """With all prompts asked, to be read in pieces of five tokens."""
    engine = Engine(decoder.target, decoder.speculation, max_num_seqs=8, prompt_piece=5)
    for prompt, updates in zip(PROMPTS, heard, strict=True):
        engine.add_request(decoder.request(prompt, params), on_update=updates.append)
    return engine


@pytest.mark.parametrize("name", DRAFTERS)
def test_pieces_change_nothing_but_the_passes(name: str) -> None:
    """Every draft is the one it is after a prompt that was read at once, those of heads, which live
    on the prompt's hidden states, included."""
    decoder = make(name)
    params = SamplingParams(seed=2, max_tokens=12)
    wanted = [decoder.generate(prompt, params) for prompt in PROMPTS]
    heard: list[list[Update]] = [[] for _ in PROMPTS]
    engine = engine_of(decoder, params, heard)
    results = {output.request_id: output.result for output in engine.step()}
    assert [len(updates) for updates in heard] == [0, 1, 0] and engine.num_tokens == 5 + 1 + len(
        heard[1][0].token_ids
    )
    while engine.has_unfinished_requests():
        results |= {output.request_id: output.result for output in engine.step()}
    for number, whole in enumerate(wanted):
        assert results[number].token_ids == whole.token_ids
        assert [record.draft_tokens for record in results[number].rounds] == [
            record.draft_tokens for record in whole.rounds
        ]


@pytest.mark.parametrize("name", ["eagle", "ngram"])
def test_a_scored_prompt_is_read_in_pieces_too(name: str) -> None:
    """Its log-probabilities, the drafts and the text are those of a prompt that was read at
    once."""
    decoder = make(name)
    params = SamplingParams(seed=2, max_tokens=6, prompt_logprobs=2, n=2)
    wanted = [decoder.generate(prompt, params) for prompt in PROMPTS]
    heard: list[list[Update]] = [[] for _ in PROMPTS]
    engine = engine_of(decoder, params, heard)
    results = {output.request_id: output.result for output in engine.step()}
    assert [bool(updates) for updates in heard] == [False, True, False]
    while engine.has_unfinished_requests():
        results |= {output.request_id: output.result for output in engine.step()}
    for number, whole in enumerate(wanted):
        assert results[number].prompt_logprobs == whole.prompt_logprobs
        for one, other in zip(results[number].outputs, whole.outputs, strict=True):
            assert one.token_ids == other.token_ids
            assert [r.draft_tokens for r in one.rounds] == [r.draft_tokens for r in other.rounds]
