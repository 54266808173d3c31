"""Prompts read in pieces before the first round: the drafts and the text are as when read at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.decode.batch import Batch
from draftproof.decode.samples import Sample
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
    return SpeculativeDecoder(DRAFTERS[name](), target, speculative_config={"num_speculative_tokens": 3})


def open_samples(decoder: SpeculativeDecoder, params: SamplingParams) -> list[Sample]:
    return [decoder.sample(decoder.target.open(), tuple(prompt), params, 0) for prompt in PROMPTS]


@pytest.mark.parametrize("name", DRAFTERS)
def test_pieces_change_nothing_but_the_passes(name: str) -> None:
    """Every draft is the one it is after a prompt that was read at once, those of heads, which live on the prompt's hidden
    states, included."""
    decoder = make(name)
    params = SamplingParams(seed=2, max_tokens=12)
    wanted = [decoder.generate(prompt, params) for prompt in PROMPTS]
    batch = Batch(piece=5)
    samples = batch.samples = open_samples(decoder, params)
    rounds = 0
    while batch.samples:
        batch.round()
        rounds += 1
        if rounds == 1:
            assert [sample.unread for sample in samples[::2]] == [23, 21] and samples[1].rounds
    for sample, whole in zip(samples, wanted, strict=True):
        mine = sample.completion(decoder.statistics([sample], params), False)
        assert mine.token_ids == whole.token_ids
        assert [record.draft_tokens for record in mine.rounds] == [record.draft_tokens for record in whole.rounds]


def test_a_scored_prompt_is_read_by_its_round() -> None:
    decoder = make("ngram")
    params = SamplingParams(seed=2, max_tokens=3, prompt_logprobs=0)
    batch = Batch(piece=5)
    samples = batch.samples = open_samples(decoder, params)
    batch.round()
    assert all(sample.rounds for sample in samples)
    assert [len(sample.generation.prompt_logprobs) for sample in samples] == [len(prompt) for prompt in PROMPTS]
