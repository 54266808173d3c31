"""Where a text ends, at the edges: at min_tokens itself, at the first of two stop strings, and what
is shown of it."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.decode.logprobs import row_logprobs
from draftproof.decode.samples import _held_back
from draftproof.decode.schedule import BatchSchedule
from draftproof.decode.stopping import Stopper
from tiny import word_tokenizer

CYCLE = [[1.0 if j == (i + 1) % 8 else 0.0 for j in range(8)] for i in range(8)]


class Letters:
    """A detokenizer whose tokens are given as texts."""

    def __init__(self, *texts):
        self._texts, self.text = texts, ""
        self.written = self

    def shown(self, length):
        return length

    def push(self, token):
        self.text += self._texts[token]


@pytest.mark.parametrize("params", [{"stop_token_ids": [7]}, {}])
def test_a_text_may_end_with_its_least_token(params):
    stopper = Stopper(
        SamplingParams(min_tokens=2, **params), eos_token_ids=() if params else (7,), limit=9
    )
    assert stopper.push(7) is None
    assert stopper.push(7).reason == "stop"


@pytest.mark.parametrize("stop", [["ab", "bcd"], ["bcd", "ab"]])
def test_the_stop_string_that_ends_first_cuts_the_text(stop):
    stopper = Stopper(
        SamplingParams(stop=stop), eos_token_ids=(), limit=9, detokenizer=Letters("x", "abcd")
    )
    assert stopper.push(0) is None
    assert stopper.push(1).stop_reason == "ab"
    assert stopper.text_end == 1


def test_the_token_that_stops_a_text_is_not_shown():
    made = SpeculativeDecoder(
        None, TableModel(CYCLE), word_tokenizer(8), speculative_config={"method": "ngram"}
    )
    params = SamplingParams(temperature=0, max_tokens=6, stop_token_ids=[3])
    result = made.generate([0], params)
    assert (result.token_ids, result.text.split()) == ((1, 2, 3), ["w1", "w2"])
    kept = made.generate(
        [0], SamplingParams(temperature=0, stop_token_ids=[3], include_stop_str_in_output=True)
    )
    assert kept.text.split() == ["w1", "w2", "w3"]


@pytest.mark.parametrize("text, held", [("xab", 2), ("xa", 1), ("x", 0), ("ab", 2), ("xabc", 0)])
def test_all_that_may_begin_a_stop_string_is_held_back(text, held):
    assert _held_back(text, ["abc"]) == held


def test_equally_likely_tokens_share_the_better_rank():
    assert [row_logprobs(np.array([1.0, 1.0, 0.0]), token, 0).rank for token in range(3)] == [
        1,
        1,
        3,
    ]


def test_a_schedule_holds_up_to_its_last_size():
    schedule = BatchSchedule.parse([[1, 4, 5], [5, 16, 0]])
    assert [schedule(size) for size in (1, 4, 5, 16, 17)] == [5, 5, 0, 0, 0]
    assert BatchSchedule.parse([[1, 2, 5], [3, 3, 4], [4, 9, 1]])(3) == 4
