"""n-gram tables: which table answers, under which thresholds."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof import SamplingParams, TableModel
from draftproof.core.chance import KeyedChance
from draftproof.core.pipeline import LawPipeline
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.ngram_cache import NGramCache
from draftproof.drafters.protocol import Request
from draftproof.drafters.stores.ngram_tables import StoredTable, build_tables

UNIFORM = TableModel([[1 / 64] * 64] * 64)
PARAMS = SamplingParams()
LAWS = LawPipeline(PARAMS, num_prompt_tokens=1, vocab_size=64)


def proposal(context, corpus=None, depth=1):
    stored = (
        None if corpus is None else StoredTable(build_tables([np.asarray(text) for text in corpus]))
    )
    session = NGramCache(stored).open(Request(tuple(context), PARAMS, LAWS, UNIFORM))
    draft = DraftBuilder(KeyedChance((0, 0), len(context)), depth=depth, vocab_size=64)
    session.propose(context, draft)
    return draft.build().tokens


@pytest.mark.parametrize(
    "context, expected",
    [
        ([1, 2, 3, 9, 1, 2, 3], (9,)),  # three tokens: once is enough
        ([2, 3, 9, 8, 2, 3], ()),  # two tokens: once is not
        ([2, 3, 9, 8, 2, 3, 9, 7, 2, 3], (9,)),
        ([3, 9, 8, 3, 9, 7, 3], (9,)),  # one token: twice of two
        ([3, 9, 8, 3, 7, 8, 3, 9, 3], (9,)),  # two of three is 66 percent
        ([3, 9, 3, 7, 3], ()),  # one of two is not
        ([5], ()),
    ],
)
def test_the_requests_own_counts_answer_under_lax_thresholds(context, expected):
    assert proposal(context) == expected


def test_the_corpus_answers_where_the_text_is_silent():
    corpus = [[4, 6]] * 3 + [[4, 9]]
    assert proposal([1, 4], corpus) == (6,), (
        "three of four is 75 percent, the strict threshold of one token"
    )
    assert proposal([1, 4], corpus[1:]) == ()
    assert proposal([4, 7, 4, 7, 4], corpus) == (7,), "the text itself goes first"


def test_the_last_resort_is_the_corpus_after_two_tokens():
    assert proposal([9, 4, 5], [[4, 5, 6], [4, 5, 6], [4, 5, 7], [4, 5, 8]]) == (6,)
    assert proposal([9, 4, 5], [[4, 5, 6], [4, 5, 7], [4, 5, 8]]) == ()


def test_the_corpus_decides_between_equals():
    context = [1, 2, 3, 8, 0, 1, 2, 3, 9, 7, 1, 2, 3]
    assert proposal(context) == (9,), "by itself the more recent"
    assert proposal(context, [[2, 3, 8], [2, 3, 8]]) == (8,)


def test_it_goes_on_from_what_it_guessed():
    assert proposal([1, 2, 3, 4, 5, 6, 9, 1, 2, 3], depth=5) == (4, 5, 6, 9, 1)
