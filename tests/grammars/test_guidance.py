"""Grammars by llguidance over a vocabulary of single characters and a few longer tokens."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.structured import StructuredOutputs
from draftproof.drafters.ngram import NGram
from draftproof.errors import UsageError
from draftproof.grammars.guidance import compile_grammar

WORDS = [b"<end>", b"a", b"b", b"ab", b"1", b"2", b'"', b"{", b"}", b":", b",", b" ", b"id"]
END = 0
SIZE = len(WORDS) + 2
"""Two ids more than the tokenizer has, as models pad their vocabulary."""


class Tokenizer:
    """A vocabulary of bytes, as llguidance takes one; longest matches first."""

    eos_token_id, bos_token_id, tokens = END, None, WORDS

    def __call__(self, text):
        text, found = text if isinstance(text, bytes) else text.encode(), []
        while text:
            word = max((w for w in WORDS[1:] if text.startswith(w)), key=len, default=None)
            if word is None:
                return found
            found.append(WORDS.index(word))
            text = text[len(word) :]
        return found

    def encode(self, text, add_special_tokens=False):
        return self(text)

    def decode(self, ids, **_):
        return b"".join(WORDS[i] for i in ids if 0 < i < len(WORDS)).decode()


TOKENIZER = Tokenizer()
TARGET = TableModel(
    np.random.default_rng(0).dirichlet(np.full(SIZE, 0.5), size=SIZE),
    eos_token_ids=[END],
    name="target",
)


def compiled(given):
    return compile_grammar(
        StructuredOutputs.from_dict(given), TOKENIZER, vocab_size=SIZE, eos_token_ids=[END]
    )


@pytest.mark.parametrize("regex", ["a(b|1){1,2}", "(ab)*2?", "a|ab|b"])
def test_every_text_within_the_grammar_is_allowed_and_no_other(regex):
    """All texts of up to three tokens, against Python's own regular expressions."""
    grammar = compiled({"regex": regex})
    for length in range(4):
        for text in itertools.product([1, 2, 3, 4, 5], repeat=length):
            matcher = grammar.begin()
            taken = all(matcher.consume(token) for token in text)
            said = TOKENIZER.decode(text)
            assert (taken and bool(matcher.mask()[END])) == bool(re.fullmatch(regex, said)), said


def test_a_fork_stays_where_it_was_and_padding_is_never_allowed():
    matcher = compiled({"regex": "a(b|1)*"}).begin()
    for token in (1, 2, 4, END):
        mask = matcher.mask()
        assert mask[token] and not mask[len(WORDS) :].any()
        assert not matcher.fork().consume(SIZE - 1)
        before = matcher.fork()
        assert matcher.consume(token) and before.mask().tolist() == mask.tolist()
    assert not matcher.mask().any() and not matcher.consume(1), (
        "after the end token there is nothing"
    )


def test_a_token_that_is_not_allowed_is_refused():
    assert not compiled({"choice": ["ab", "b"]}).begin().consume(4)


@pytest.mark.parametrize(
    "given",
    [
        {
            "json": {
                "type": "object",
                "properties": {"id": {"enum": [1, 2]}},
                "required": ["id"],
                "additionalProperties": False,
            }
        },
        {"choice": ["ab", "a1", "b2"]},
        {"regex": "[ab]{2,3}(1|2)"},
        {"grammar": 'root ::= "a" ("1" | "2") "b"'},
    ],
)
@pytest.mark.parametrize("config", [{"rule": "match"}, {"rule": "token"}])
def test_texts_keep_to_the_grammar_with_and_without_drafts(given, config):
    """Every text is within the grammar; under `match` it is plain decoding's for the seed."""
    made = SpeculativeDecoder(
        NGram(), TARGET, TOKENIZER, speculative_config={"num_speculative_tokens": 4} | config
    )
    for seed in range(12):
        params = SamplingParams(max_tokens=30, seed=seed, structured_outputs=given)
        drafted = made.generate([1, 4, 2, 1, 4], params)
        plain = made.plain.generate([1, 4, 2, 1, 4], params)
        for result in (drafted, plain):
            if result.finish_reason != "stop":
                continue
            kept = compiled(given).begin()
            assert all(kept.consume(token) for token in result.token_ids)
            if "json" in given:
                assert json.loads(result.text)["id"] in (1, 2)
        if config["rule"] == "match":
            assert drafted.token_ids == plain.token_ids


def test_what_the_grammar_leaves_no_choice_about_is_drafted():
    """`{"id":` is certain from its first character on: the drafter knows nothing of it, and it
    takes few passes."""
    given = {
        "json": {
            "type": "object",
            "properties": {"id": {"const": 1}},
            "required": ["id"],
            "additionalProperties": False,
        }
    }
    made = SpeculativeDecoder(
        NGram(),
        TARGET,
        TOKENIZER,
        speculative_config={"num_speculative_tokens": 6, "rule": "match"},
    )
    drafted = accepted = 0
    for seed in range(8):
        result = made.generate(
            [1, 2], SamplingParams(max_tokens=30, seed=seed, structured_outputs=given)
        )
        drafted += result.stats.num_draft_tokens
        accepted += result.stats.num_accepted_tokens
    assert drafted >= 16 and accepted / drafted > 0.5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"regex": "(a"}, "structured_outputs.regex cannot be used.*error: unclosed group"),
        ({"json": {"type": "nothing"}}, "structured_outputs.json cannot be used"),
        ({"grammar": "start: nowhere"}, "structured_outputs.grammar cannot be used"),
    ],
)
def test_a_wrong_grammar_is_refused_before_any_work(given, said):
    made = SpeculativeDecoder(NGram(), TARGET, TOKENIZER)
    with pytest.raises(UsageError, match=said):
        made.generate([1], SamplingParams(structured_outputs=given))


def test_a_grammar_needs_a_tokenizer():
    with pytest.raises(UsageError, match="structured_outputs needs a tokenizer"):
        SpeculativeDecoder(NGram(), TARGET).generate(
            [1], SamplingParams(structured_outputs={"regex": "a"})
        )


def test_a_target_without_an_end_is_refused():
    """Its texts would come to a place where nothing may follow."""
    target = TableModel(np.full((SIZE, SIZE), 1 / SIZE), name="endless", max_length=99)
    decoder = SpeculativeDecoder(NGram(3, 1), target, TOKENIZER)
    with pytest.raises(UsageError, match="needs an end token, which endless does not have"):
        decoder.generate([1], SamplingParams(structured_outputs={"choice": ["ab"]}))


def test_a_grammar_is_compiled_once():
    assert compiled({"regex": "ab*"}) is compiled({"regex": "ab*"})


MANY = ["".join(word) for word in itertools.product("12", repeat=12)]


def test_thousands_of_choices_can_be_followed():
    """As one terminal: as rules of their own, llguidance gives up after 2,000 of them."""
    asked = StructuredOutputs(choice=tuple(MANY))
    matcher = compile_grammar(asked, TOKENIZER, vocab_size=SIZE, eos_token_ids=[END]).begin()
    for token in TOKENIZER(MANY[3000]):
        assert matcher.consume(token)
    assert list(np.flatnonzero(matcher.mask())) == [END]


def test_a_grammar_that_cannot_be_followed_says_why():
    """And does not end the text as if nothing were allowed there."""
    rules = "start: " + " | ".join(json.dumps(one) for one in MANY)
    params = SamplingParams(structured_outputs={"grammar": rules}, max_tokens=20, seed=0)
    decoder = SpeculativeDecoder(NGram(3, 1), TARGET, TOKENIZER)
    with pytest.raises(UsageError, match="more than llguidance keeps track of: Parser Error"):
        decoder.generate([1], params)
