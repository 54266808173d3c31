"""Text with a store is text without one: greedy and sampled, on every tiny family, for short
prompts and follow-ups."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.drafters.ngram_cache import NGramCache
from draftproof.drafters.recycling import Recycling
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.ngram_tables import StoredTable, build_tables
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array
from draftproof.drafters.suffix import Suffix
from tiny import FAMILIES

CORPUS = [np.asarray([(7 * i + k) % 64 for i in range(80)]) for k in range(5)]
DRAFTERS = {
    "suffix": lambda: Suffix(),
    "suffix tree": lambda: Suffix(max_spec_factor=2.0, tree=True),
    "suffix shared": lambda: Suffix(max_cached_requests=10),
    "ngram_cache": lambda: NGramCache(StoredTable(build_tables(CORPUS))),
    "recycling": lambda: Recycling(12, 4),
    "retrieval": lambda: Retrieval(SuffixArray(build_suffix_array(CORPUS)), 12),
}
SAMPLED = dict(
    temperature=0.9,
    top_k=20,
    repetition_penalty=1.2,
    presence_penalty=0.3,
    bad_words_ids=[[5, 9], [7]],
    seed=11,
)


@cache
def target(family: str):
    return FAMILIES[family](torch.float64, seed=0)


def prompt_of(size: int) -> list[int]:
    return [(7 * i + 3) % 64 for i in range(size)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", DRAFTERS)
def test_texts_are_plain_decodings(kind, family):
    """A long prompt, a shorter second request, one token, an unrelated follow-up, and the first
    again, one decoder for all."""
    made = SpeculativeDecoder(
        DRAFTERS[kind](), target(family), speculative_config={"num_speculative_tokens": 5}
    )
    drafted = 0
    for prompt in (prompt_of(9), prompt_of(3), [60], [50, 4, 50, 4, 50], prompt_of(9)):
        for params in (
            SamplingParams(temperature=0, max_tokens=20),
            SamplingParams(max_tokens=16, n=2, **SAMPLED),
        ):
            result, plain = made.generate(prompt, params), made.plain.generate(prompt, params)
            assert [o.token_ids for o in result.outputs] == [o.token_ids for o in plain.outputs]
            drafted += sum(o.stats.num_draft_tokens for o in result.outputs)
    assert drafted > 0


@pytest.mark.parametrize("kind", [kind for kind in DRAFTERS if kind != "suffix shared"])
def test_a_request_is_the_same_after_others(kind):
    made = SpeculativeDecoder(
        DRAFTERS[kind](), target("llama"), speculative_config={"num_speculative_tokens": 5}
    )
    params = SamplingParams(temperature=0, max_tokens=30)
    fresh = made.generate(prompt_of(4), params).rounds
    made.generate([1, 2] * 12, params)
    assert made.generate(prompt_of(4), params).rounds == fresh
