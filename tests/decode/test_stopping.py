"""Ends inside a block: text, ids, log-probabilities, counts and cache stop at the token plain
decoding stops at."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.decode.passes import drive
from draftproof.drafters.draft_model import DraftModel
from generations import generation_of
from tiny import llama, word_tokenizer
from tokenizers_in_code import byte_level

GREEDY = {"temperature": 0, "max_tokens": 30}


def chain(size: int = 64) -> TableModel:
    """Token i is always followed by i + 1."""
    return TableModel(
        [[1.0 if j == (i + 1) % size else 0.0 for j in range(size)] for i in range(size)]
    )


def self_drafting(model, tokenizer=None, length: int = 8) -> SpeculativeDecoder:
    return SpeculativeDecoder(
        model, model, tokenizer, speculative_config={"num_speculative_tokens": length}
    )


@pytest.mark.parametrize("position", range(1, 9))
@pytest.mark.parametrize("ends", ["one", "two"])
def test_eos_inside_an_accepted_block(position, ends):
    """transformers#47912: an accepted end token inside a block was followed by more text."""
    module = llama(torch.float64)
    free = (
        SpeculativeDecoder(None, module).generate([3, 10, 17], SamplingParams(**GREEDY)).token_ids
    )
    end = free[position - 1]
    first = free.index(end) + 1
    module.generation_config.eos_token_id = end if ends == "one" else [end, 63 if end != 63 else 62]
    made = self_drafting(module)
    result = made.generate([3, 10, 17], SamplingParams(**GREEDY))
    assert result.token_ids == made.plain.generate([3, 10, 17], SamplingParams(**GREEDY)).token_ids
    assert result.token_ids[-1] in made.target.eos_token_ids
    assert len(result.token_ids) <= first
    assert result.token_ids.count(result.token_ids[-1]) == 1
    assert result.finish_reason == "stop"
    assert (
        result.stats.num_emitted_tokens == len(result.token_ids) == len(result.outputs[0].origins)
    )
    pieces = list(made.stream([3, 10, 17], SamplingParams(**GREEDY)))
    assert tuple(t for piece in pieces for t in piece.token_ids) == result.token_ids
    assert [piece.finish_reason for piece in pieces][-1] == "stop"


def test_an_end_inside_a_tree_ends_the_text_and_the_cache():
    """The end is the second of three accepted levels and hangs under a second sibling: what is
    below it was accepted too."""
    target = chain()
    half = TableModel(
        [[0.5 if j in ((i + 1) % 64, (i + 2) % 64) else 0.0 for j in range(64)] for i in range(64)]
    )
    made = SpeculativeDecoder(
        half, target, speculative_config={"model": "half", "tree": "2,2,2", "rule": "match"}
    )
    for seed in range(4):
        params = SamplingParams(max_tokens=20, stop_token_ids=[12], seed=seed)
        session = target.open()
        generation = generation_of(made, session, (10,), params)
        record = drive(generation.round())
        assert (
            record.tokens == (11, 12)
            and record.origins == ("draft", "draft")
            and record.num_accepted_tokens == 2
        )
        assert tuple(generation.context) == tuple(session.tokens) == (10, 11, 12)
        assert generation.finished


def test_the_cache_ends_where_the_text_ends():
    """llama.cpp#28049: accepted tokens behind the end stayed in the cache."""
    made = self_drafting(chain())
    session = made.target.open()
    params = SamplingParams(temperature=0, max_tokens=20, stop_token_ids=[13], seed=0)
    generation = generation_of(made, session, (10,), params)
    while not generation.finished:
        drive(generation.round())
    assert tuple(generation.context) == (10, 11, 12, 13)
    assert tuple(session.tokens) == (10, 11, 12, 13)


@pytest.mark.parametrize("length", [1, 3, 8])
@pytest.mark.parametrize(
    "stop, text",
    [("w2", "w1 "), ("w4 w5", "w1 w2 w3 "), (["w9", "w3"], "w1 w2 "), ("w1", ""), ("2 w3", "w1 w")],
)
def test_stop_strings_inside_a_block_and_across_rounds(stop, text, length):
    """sglang#23802: only a short tail of a block was looked at, and the stop string in front of it
    missed."""
    made = self_drafting(chain(), word_tokenizer(), length)
    params = SamplingParams(temperature=0, max_tokens=20, stop=stop)
    result = made.generate([0], params)
    plain = made.plain.generate([0], params)
    assert (result.text, result.finish_reason) == (text, "stop")
    assert (result.token_ids, result.text, result.stop_reason) == (
        plain.token_ids,
        plain.text,
        plain.stop_reason,
    )
    pieces = list(made.stream([0], params))
    assert "".join(piece.text for piece in pieces) == text
    assert pieces[-1].stop_reason == result.stop_reason


@pytest.mark.parametrize("length", [1, 2, 8])
@pytest.mark.parametrize(
    "fields, text, count",
    [
        ({"stop": "</think>"}, "ab", 3),
        ({"stop": "</think>", "include_stop_str_in_output": True}, "ab", 3),
        ({"stop": "</think>", "skip_special_tokens": False}, "ab", 3),
        (
            {"stop": "</think>", "skip_special_tokens": False, "include_stop_str_in_output": True},
            "ab</think>",
            3,
        ),
        ({"stop": "b</think>c"}, "a", 4),
        ({"stop": "k>c"}, "ab", 4),
        ({"stop": ["bc", "d"]}, "abc", 5),
        ({"stop": "bc"}, "abcdef", 7),
    ],
)
def test_a_stop_string_is_looked_for_in_the_text_as_the_model_wrote_it(fields, text, count, length):
    """`</think>` is one special token, which `skip_special_tokens` leaves out of the text: it never
    ended one. And "bc" is nowhere in what was written, though it is in what is shown."""
    tokenizer = byte_level(end="</think>")
    ids = [*(tokenizer.encode(piece)[0] for piece in ("a", "b", "</think>", "c", "d", "e", "f")), 0]
    model = TableModel(
        lambda prefix: np.eye(len(tokenizer))[ids[min(len(prefix) - 1, 7)]],
        vocab_size=len(tokenizer),
    )
    made = self_drafting(model, tokenizer, length)
    params = SamplingParams(temperature=0, max_tokens=7, **fields)
    for decoder in (made, made.plain):
        result = decoder.generate([0], params)
        assert (result.text, len(result.token_ids)) == (text, count)
        assert result.finish_reason == ("length" if count == 7 else "stop")
        pieces = list(decoder.stream([0], params))
        assert (
            "".join(piece.text for piece in pieces) == text
            and pieces[-1].stop_reason == result.stop_reason
        )


def test_the_stop_string_can_be_kept():
    made = self_drafting(chain(), word_tokenizer())
    params = SamplingParams(
        temperature=0, max_tokens=20, stop="w3", include_stop_str_in_output=True
    )
    assert made.generate([0], params).text == "w1 w2 w3"
    assert "".join(piece.text for piece in made.stream([0], params)) == "w1 w2 w3"


def test_a_possible_beginning_of_a_stop_string_is_held_back_until_it_is_none():
    made = self_drafting(chain(), word_tokenizer(), 2)
    params = SamplingParams(temperature=0, max_tokens=6, stop="w3 w5")
    assert (
        "".join(piece.text for piece in made.stream([0], params))
        == "w1 w2 w3 w4 w5 w6"
        == made.generate([0], params).text
    )


def test_stop_token_ids_and_ignore_eos():
    model = TableModel(chain()._law.__closure__[0].cell_contents, eos_token_ids=(4,))
    made = self_drafting(model)
    assert made.generate([0], SamplingParams(temperature=0, max_tokens=9)).token_ids == (1, 2, 3, 4)
    ignoring = made.generate(
        [0], SamplingParams(temperature=0, max_tokens=9, ignore_eos=True, stop_token_ids=[7])
    )
    assert (ignoring.token_ids, ignoring.finish_reason, ignoring.stop_reason) == (
        (1, 2, 3, 4, 5, 6, 7),
        "stop",
        7,
    )


def test_min_tokens_holds_off_every_kind_of_end():
    """The end token is banned until min_tokens are out, and no stop string counts before."""
    rows = [
        [0.2 if j == 15 else 0.8 if j == (i + 1) % 15 else 0.0 for j in range(16)]
        for i in range(16)
    ]
    model = TableModel(rows, eos_token_ids=(15,))
    made = self_drafting(model, word_tokenizer(16), 4)
    for seed in range(40):
        result = made.generate([0], SamplingParams(max_tokens=30, min_tokens=5, seed=seed))
        assert 15 not in result.token_ids[:4]
        assert len(result.token_ids) >= 5
    stopped = self_drafting(chain(), word_tokenizer()).generate(
        [0], SamplingParams(temperature=0, max_tokens=9, min_tokens=4, stop="w2")
    )
    assert len(stopped.token_ids) >= 4


class Counting(DraftModel):
    """Counts the draft model's forward passes."""

    def __init__(self, model):
        super().__init__(model)
        self.steps = 0

    def open(self, request):
        session = super().open(request)
        propose = session.propose

        def counted(context, draft):
            for step in (steps := propose(context, draft)):
                self.steps += 1
                output = yield step
                while True:
                    try:
                        step = steps.send(output)
                    except StopIteration:
                        return
                    self.steps += 1
                    output = yield step

        session.propose = counted
        return session


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_limit_smaller_than_the_draft(limit, recwarn):
    """transformers#28555, ferrox#311: never more than asked for, never more drafts than can be
    used, no pass for nothing."""
    module = llama(torch.float64)
    drafter = Counting(SpeculativeDecoder(None, module).target)
    made = SpeculativeDecoder(drafter, module, speculative_config={"num_speculative_tokens": 8})
    result = made.generate(
        [1, 2, 3], SamplingParams(temperature=0, max_tokens=limit, min_tokens=limit)
    )
    assert len(result.token_ids) == limit
    assert result.finish_reason == "length"
    assert result.stats.num_draft_tokens <= limit - 1
    assert drafter.steps == limit - 1
    assert not recwarn.list


def test_the_context_limit_ends_a_text_as_plain_decoding_does():
    model = TableModel(chain()._law.__closure__[0].cell_contents, max_length=10)
    made = self_drafting(model)
    params = SamplingParams(temperature=0, max_tokens=None)
    result = made.generate([0, 1, 2], params)
    assert (
        result.token_ids == made.plain.generate([0, 1, 2], params).token_ids == tuple(range(3, 10))
    )
    assert result.finish_reason == "length"
