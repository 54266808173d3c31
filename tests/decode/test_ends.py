"""What stands behind an end: nothing is drafted there, no law is asked for there, and no fault
there counts.

Grammars have no continuation after an end token. Plain decoding never asks for one, so no request
with drafts may fail by it."""

from __future__ import annotations

import itertools

import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.chance import KeyedChance
from draftproof.core.records import ROOT
from draftproof.decode.stopping import Stopper
from draftproof.drafters.builder import DraftBuilder
from draftproof.errors import InvalidLogitsError
from tiny import word_tokenizer

END = 2
PROMPT = [1, END, 0, 1, 1]
TARGET = TableModel([[0.4, 0.3, 0.3]] * 3, eos_token_ids=[END])
DRAFT = TableModel([[0.4, 0.2, 0.4]] * 3)
SETTINGS = [
    *(
        {"num_speculative_tokens": 2, "rule": rule}
        for rule in ("match", "token", "block", "rrs", "traversal", "gumbel", "k_seq")
    ),
    {"tree": "2,1", "tree_selection": "iid", "rule": "k_seq"},
    {"tree": "2,1", "tree_selection": "without_replacement", "rule": "traversal"},
    {"tree": "2,1", "tree_selection": "top_k_plus_one", "rule": "greedy_k"},
    *(
        {"method": method, "num_speculative_tokens": 3}
        for method in ("ngram", "suffix", "recycling", "lookahead")
    ),
    {"method": "ngram", "num_speculative_tokens": 3, "rule": "block"},
]


class Grammar:
    """Allows everything, but nothing after `last` in what was generated; or says so by raising, as
    some of transformers' do."""

    def __init__(self, last: int = END, prompt: int = len(PROMPT), raises: bool = False) -> None:
        self._last, self._prompt, self._raises = last, prompt, raises

    def __call__(self, input_ids, scores):
        if self._last not in input_ids[0, self._prompt :].tolist():
            return scores
        if self._raises:
            raise ValueError("no continuation")
        return scores - float("inf")


def decoder(setting) -> SpeculativeDecoder:
    return SpeculativeDecoder(
        None if "method" in setting else DRAFT, TARGET, speculative_config=setting
    )


def params(seed: int, grammar: Grammar, **changes) -> SamplingParams:
    return SamplingParams(seed=seed, max_tokens=8, logits_processors=[grammar], **changes)


@pytest.mark.parametrize("raises", [False, True], ids=["no token", "raises"])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_grammar_without_continuation_fails_no_request(setting, raises):
    """200 requests with two drafts: 151 failed."""
    made = decoder(setting)
    ended = [
        made.generate(PROMPT, params(seed, Grammar(raises=raises))).finish_reason
        for seed in range(40)
    ]
    assert set(ended) <= {"stop", "length"} and ended.count("stop") > 20


@pytest.mark.parametrize("setting", SETTINGS[1:3], ids=str)
def test_nor_several_samples_batches_and_turns(setting):
    made, grammar = decoder(setting), Grammar()
    several = made.generate(PROMPT, params(1, grammar, n=12)).outputs
    batch = [
        result.outputs[0]
        for result in made.generate([PROMPT] * 12, [params(seed, grammar) for seed in range(12)])
    ]
    assert {output.finish_reason for output in (*several, *batch)} <= {"stop", "length"}
    with made.session() as turns:
        for seed in range(12):
            assert turns.generate(PROMPT, params(seed, grammar)).finish_reason in ("stop", "length")


@pytest.mark.parametrize("rule", ["match", "gumbel"])
def test_a_ban_that_empties_the_row_behind_an_end_counts_nowhere(rule):
    """`bad_words_ids` and a zero in the target's law leave no token after the end, which plain
    decoding never asks for."""
    target = TableModel([[0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [1.0, 0.0, 0.0]], eos_token_ids=[END])
    made = SpeculativeDecoder(
        DRAFT, target, speculative_config={"num_speculative_tokens": 2, "rule": rule}
    )
    for seed in range(30):
        asked = SamplingParams(seed=seed, max_tokens=5, bad_words_ids=[[END, 0]])
        assert (
            made.generate([0, 1], asked).token_ids == made.plain.generate([0, 1], asked).token_ids
        )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", ["match", "token", "block", "traversal"])
def test_an_error_behind_a_stop_string_does_not_count(rule, temperature):
    """That a stop string is complete is only seen when the text is decoded: the draft goes on
    behind it."""
    chain = TableModel([[float(j == (i + 1) % 8) for j in range(8)] for i in range(8)])
    made = SpeculativeDecoder(
        chain,
        chain,
        word_tokenizer(8),
        speculative_config={"num_speculative_tokens": 6, "rule": rule},
    )
    for raises in (False, True):
        asked = SamplingParams(
            seed=1,
            temperature=temperature,
            max_tokens=7,
            stop=["w4"],
            logits_processors=[Grammar(last=4, prompt=1, raises=raises)],
        )
        result = made.generate([0], asked)
        assert result.token_ids == (1, 2, 3, 4) and result.stop_reason == "w4"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", ["match", "token", "block", "traversal"])
def test_an_error_on_the_way_ends_the_text_where_plain_decoding_does(rule, temperature):
    chain = TableModel([[float(j == (i + 1) % 8) for j in range(8)] for i in range(8)])
    made = SpeculativeDecoder(
        chain, chain, speculative_config={"num_speculative_tokens": 6, "rule": rule}
    )
    asked = SamplingParams(
        seed=1, temperature=temperature, max_tokens=7, logits_processors=[Grammar(last=4, prompt=1)]
    )
    with pytest.raises(InvalidLogitsError, match="no token is allowed"):
        made.generate([0], asked)
    ours, plain = (one.generate([[0], [0]], asked)[1] for one in (made, made.plain))
    assert ours.token_ids == plain.token_ids == (1, 2, 3, 4)
    assert len(ours.outputs[0].origins) == 4 and ours.finish_reason == "error"


def test_the_drafter_is_told_that_nothing_fits_under_an_end():
    stopper = Stopper(
        SamplingParams(min_tokens=2, stop_token_ids=[1]), eos_token_ids=[END], limit=9
    )
    draft = DraftBuilder(
        KeyedChance((0, 0), 3), depth=4, vocab_size=3, max_nodes=8, ends=stopper.ends
    )
    first = draft.guess(END, ROOT)  # within min_tokens it ends nothing
    assert draft.room_under(first) == 3
    under = [draft.guess(token, first) for token in (END, 1, 0)]
    assert [draft.room_under(node) for node in under] == [0, 0, 2]
    assert not draft.go_on(None, under[0]) and draft.go_on(None, under[2])
    assert draft.build().ends == {under[0], under[1]}
    assert draft.ends_text(END, 2) and not draft.ends_text(END, 1) and not draft.ends_text(0, 3)


@pytest.mark.parametrize("ignores", [True, False])
def test_an_end_that_is_ignored_ends_no_draft(ignores):
    stopper = Stopper(SamplingParams(ignore_eos=ignores), eos_token_ids=[END], limit=9)
    assert stopper.ends(END, 1) is not ignores


def test_every_round_stops_drafting_at_the_end():
    made = decoder({"num_speculative_tokens": 5, "rule": "token"})
    rounds = itertools.chain.from_iterable(
        made.generate(PROMPT, SamplingParams(seed=seed, max_tokens=9)).outputs[0].rounds
        for seed in range(40)
    )
    drafts = [one.draft_tokens for one in rounds]
    assert any(END in tokens for tokens in drafts)
    assert all(END not in tokens[:-1] for tokens in drafts)
