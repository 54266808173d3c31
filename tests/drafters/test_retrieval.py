"""Retrieval: the longest match of the corpus, its continuations as a trie, the largest shares
first."""

from __future__ import annotations

import numpy as np

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.chance import KeyedChance
from draftproof.core.pipeline import LawPipeline
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Request
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array

UNIFORM = TableModel([[1 / 64] * 64] * 64)
CORPUS = SuffixArray(
    build_suffix_array(
        [np.asarray(d) for d in ([1, 2, 3, 4], [9, 1, 2, 3, 5], [1, 2, 6], [8, 2, 7, 7], [2, 7])]
    )
)


def proposal(context, depth=4, nodes=32, **options):
    params = SamplingParams()
    laws = LawPipeline(params, num_prompt_tokens=1, vocab_size=64)
    session = Retrieval(CORPUS, nodes, **options).open(
        Request(tuple(context), params, laws, UNIFORM)
    )
    draft = DraftBuilder(
        KeyedChance((0, 0), len(context)), depth=depth, vocab_size=64, max_nodes=nodes
    )
    session.propose(context, draft)
    return draft.build()


def test_continuations_are_merged_and_the_frequent_come_first():
    draft = proposal([5, 1, 2])
    assert (draft.tokens, draft.parents) == ((3, 4, 5, 6), (-1, 0, 0, -1))
    assert proposal([5, 1, 2], nodes=2).tokens == (3, 4)
    assert proposal([5, 1, 2], depth=1).tokens == (3, 6)


def test_a_longer_match_shuts_out_shorter_ones():
    assert proposal([9, 1, 2]).tokens == (3, 5)
    assert proposal([8, 2]).tokens == (7, 7), "documents end where they end"


def test_one_token_is_no_match_and_nothing_is_drafted_past_a_document():
    assert proposal([2]).tokens == ()
    assert proposal([4, 4, 4]).tokens == ()
    assert proposal([3, 5]).tokens == ()


def test_as_a_chain_the_likeliest_path_is_drafted():
    draft = proposal([5, 1, 2], trees=False)
    assert (draft.tokens, draft.is_chain) == ((3, 4), True)


def test_many_occurrences_are_sampled_evenly():
    text = np.concatenate([[1, 2, 10 + i % 3] for i in range(600)])
    drafter = Retrieval(SuffixArray(build_suffix_array([text])), 8)
    made = SpeculativeDecoder(drafter, UNIFORM)
    first = made.generate([1, 2], SamplingParams(max_tokens=8, seed=0)).rounds[0]
    assert {
        token
        for token, parent in zip(first.draft_tokens, first.draft_parents, strict=True)
        if parent == -1
    } == {
        10,
        11,
        12,
    }
