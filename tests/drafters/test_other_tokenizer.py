"""A draft model with another tokenizer: exact by both routes, clean inputs, the better route, and
what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.other_tokenizer import OtherTokenizer
from draftproof.errors import UsageError, VocabularyMismatchError
from draftproof.models.hf import HFModel
from draftproof.models.transcript import Vocabularies
from sampling import assert_same_law, exact_law
from tiny import FAMILIES, llama, word_tokenizer
from tokenizers_in_code import HARD, byte_level, sentencepiece

ROUTES = ["text", "shared", "auto"]


def model(family, tokenizer, **changes):
    return HFModel(FAMILIES[family](vocab_size=len(tokenizer), **changes), tokenizer)


def decoder(target, draft, route="auto", **keys):
    config = {
        "use_heterogeneous_vocab": True,
        "heterogeneous_vocab_route": route,
        "num_speculative_tokens": 3,
    } | keys
    return SpeculativeDecoder(draft, target, target.tokenizer, speculative_config=config)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_greedy_text_is_plain_decodings(family, route):
    made = decoder(model(family, byte_level()), model("llama", sentencepiece(), seed=1), route)
    params = SamplingParams(max_tokens=14, temperature=0, ignore_eos=True)
    for prompt in ("The quick", "a", "So\n"):
        result = made.generate(prompt, params)
        assert result.token_ids == made.plain.generate(prompt, params).token_ids
        assert result.stats.num_draft_tokens > 0


@pytest.mark.parametrize("route", ROUTES)
def test_sampling_runs_under_every_parameter(route):
    made = decoder(model("llama", sentencepiece()), model("llama", byte_level(), seed=1), route)
    params = SamplingParams(
        max_tokens=14, seed=3, temperature=0.8, top_p=0.9, repetition_penalty=1.2, ignore_eos=True
    )
    result = made.generate("The lazy dog", params)
    assert len(result.token_ids) == 14
    again = made.generate("The lazy dog", params)
    assert again.token_ids == result.token_ids
    assert [r.draft_tokens for r in again.rounds] == [r.draft_tokens for r in result.rounds]


class Letters:
    """A spelling by hand: the tokens are these bytes, the longest that fits is taken first."""

    def __init__(self, *tokens, end=None):
        self._tokens, self._end = tokens, end
        self.specials, self.starts = {} if end is None else {"end": end}, ()
        self.leads_with_space = False

    def spelled(self, token):
        return None if token == self._end else self._tokens[token]

    def by_bytes(self):
        return {spelled: token for token, spelled in enumerate(self._tokens) if token != self._end}

    def encode(self, data):
        ids = []
        while data:
            fits = [t for s, t in self.by_bytes().items() if data.startswith(s)]
            if not fits:
                data = data[1:]
                continue
            ids.append(max(fits, key=lambda token: len(self._tokens[token])))
            data = data[len(self._tokens[ids[-1]]) :]
        return ids


def by_prefix(seed, size):
    def law(prefix):
        rng = np.random.default_rng([seed, len(prefix), *prefix])
        mass = np.exp(rng.normal(size=size))
        return mass / mass.sum()

    return TableModel(law, vocab_size=size)


TARGET, DRAFT = Letters(b"a", b"b", b"ab"), Letters(b"b", b"bb", b"a", b"ba")
BETWEEN = Vocabularies(TARGET, DRAFT, target_size=3, draft_size=4)


def toy(route, rule=None, drafter=None):
    drafter = drafter or OtherTokenizer(by_prefix(2, 4), BETWEEN, route)
    return SpeculativeDecoder(
        drafter,
        by_prefix(1, 3),
        speculative_config={"num_speculative_tokens": 2} | ({"rule": rule} if rule else {}),
    )


@pytest.mark.parametrize("rule", ["token", "block", "match"])
@pytest.mark.parametrize("route", ROUTES)
def test_the_law_is_the_targets(route, rule):
    made = toy(route, rule)
    params = {"temperature": 0.7, "frequency_penalty": 0.3}
    for changes in ({}, params):
        assert_same_law(
            exact_law(made, [0, 1], 4, **changes),
            exact_law(made.plain, [0, 1], 4, **changes),
            tolerance=1e-12,
        )


def test_the_ratio_of_the_unrestricted_law_is_biased(monkeypatch):
    """The mutant: drawn from the shared tokens, judged by the draft model's law over all of its
    own, which is smaller there."""
    made = toy("shared", "token")
    plain = exact_law(made.plain, [0, 1], 3)
    draw = DraftBuilder.draw

    def unrestricted(self, law, parent=None):
        node = self.newest
        token = draw(self, law, parent)
        self._laws[node] = self._laws[node] * 0.6
        return token

    monkeypatch.setattr(DraftBuilder, "draw", unrestricted)
    found = exact_law(made, [0, 1], 3)
    assert 0.5 * sum(abs(found.get(key, 0.0) - plain[key]) for key in plain) > 0.01


def test_the_shared_route_proposes_shared_tokens_only():
    assert dict(BETWEEN.draft_of) == {0: 2, 1: 0}
    rounds = toy("shared").generate([0, 1], SamplingParams(max_tokens=60, seed=0)).rounds
    drafted = {token for record in rounds for token in record.draft_tokens}
    assert drafted == {0, 1}
    texts = toy("text").generate([0, 1], SamplingParams(max_tokens=60, seed=0)).rounds
    assert 2 in {token for record in texts for token in record.draft_tokens}


def test_auto_keeps_to_the_route_that_is_accepted_more():
    """A draft model that always writes "ab", which only the text route can propose as the target's
    own token."""
    target = TableModel([[0.02, 0.02, 0.96]] * 3)
    writer = TableModel([[0.01, 0.01, 0.97, 0.01]] * 3 + [[0.97, 0.01, 0.01, 0.01]])
    table = [
        [0.97, 0.01, 0.01, 0.01] if token == 2 else [0.01, 0.01, 0.97, 0.01] for token in range(4)
    ]
    drafter = OtherTokenizer(TableModel(table), BETWEEN, "auto")
    made = SpeculativeDecoder(drafter, target, speculative_config={"num_speculative_tokens": 4})
    rounds = made.generate([2], SamplingParams(max_tokens=80, seed=0)).rounds
    late = [record for record in rounds[8:-2] if record.draft_tokens]
    assert late and all(2 in record.draft_tokens for record in late)
    assert writer.vocab_size == 4


@pytest.mark.parametrize("route", ROUTES)
def test_the_draft_model_reads_the_text_and_nothing_else(route, monkeypatch):
    target = model("llama", byte_level(), max_position_embeddings=256)
    draft = model("llama", sentencepiece(), seed=1, max_position_embeddings=256)
    read, extend_many = [], type(draft).extend_many

    def watched(self, steps):
        read.extend((*step.session.tokens, *step.tokens) for step in steps if self is draft)
        return extend_many(self, steps)

    monkeypatch.setattr(type(draft), "extend_many", watched)
    made = decoder(target, draft, route)
    made.generate(HARD, SamplingParams(max_tokens=12, temperature=0, ignore_eos=True))
    between = made.drafter.between
    assert len(read) > 6
    for ids in read:
        assert (
            ids[0] == draft.tokenizer.bos_token_id and draft.tokenizer.bos_token_id not in ids[1:]
        )
        spelled = b"".join(between.draft.spelled(token) or b"" for token in ids[1:])
        # an end token the draft lacks is left out
        assert spelled.startswith(b" " + HARD.replace("<|end|>", "")[:50].encode())


def test_the_same_tokenizer_is_no_other_tokenizer():
    target, draft = model("llama", byte_level()), model("llama", byte_level(), seed=1)
    assert type(decoder(target, draft).drafter).__name__ == "DraftModel"


def test_without_the_key_another_tokenizer_is_refused_and_the_key_named():
    target, draft = model("llama", byte_level()), model("llama", sentencepiece(), seed=1)
    with pytest.raises(VocabularyMismatchError, match='"use_heterogeneous_vocab": true'):
        SpeculativeDecoder(draft, target, target.tokenizer)


def test_what_cannot_be_is_refused_in_a_sentence():
    target, draft = model("llama", byte_level()), model("llama", sentencepiece(), seed=1)
    with pytest.raises(UsageError, match="with its own tokenizer"):
        decoder(target, draft.module)
    with pytest.raises(UsageError, match="needs both; .* has none"):
        decoder(target, HFModel(llama()))
    with pytest.raises(UsageError, match="drafts chains; leave the tree out"):
        SpeculativeDecoder(
            draft,
            target,
            target.tokenizer,
            speculative_config={"use_heterogeneous_vocab": True, "tree": "2,1"},
        )
    with pytest.raises(UsageError, match="allowed: auto, shared, text"):
        decoder(target, draft, "letters")
    with pytest.raises(UsageError, match="allowed: true and false"):
        decoder(target, draft, use_heterogeneous_vocab="yes")
    with pytest.raises(UsageError, match="neither byte by byte"):
        decoder(target, HFModel(llama(vocab_size=64), word_tokenizer()))
    with pytest.raises(UsageError, match="shares no token"):
        OtherTokenizer(
            by_prefix(2, 1),
            Vocabularies(TARGET, Letters(b"z"), target_size=3, draft_size=1),
            "auto",
        )


def test_a_text_longer_than_the_draft_models_context_goes_on_plainly():
    target = model("llama", byte_level())
    draft = model("llama", sentencepiece(), seed=1, max_position_embeddings=16)
    made = decoder(target, draft)
    params = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
    result = made.generate("The quick brown fox", params)
    assert result.token_ids == made.plain.generate("The quick brown fox", params).token_ids
    assert any("outgrew its 16 tokens" in (record.note or "") for record in result.rounds)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("route", ROUTES)
def test_a_processor_may_force_a_token_that_the_draft_model_does_not_have(route):
    """As transformers' processors of forced tokens do: token 2 is spelled by no token of the draft
    model."""

    def forced(ids, scores):
        scores = torch.full_like(scores, -torch.inf)
        scores[:, 2] = 0.0
        return scores

    params = SamplingParams(max_tokens=6, temperature=0, logits_processors=[forced])
    assert toy(route).generate([0, 1], params).token_ids == (2,) * 6


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("route", ["text", "shared"])
def test_a_draft_model_that_gives_nan_is_reported(route, temperature):
    made = toy(route)
    made.drafter.model.logits = lambda prefix: np.full(4, np.nan)
    stats = made.generate(
        [0, 1], SamplingParams(max_tokens=4, temperature=temperature, seed=1)
    ).stats
    assert stats.num_invalid_draft_laws > 0 and stats.num_draft_tokens == 0
    assert any("NaN" in note for note in stats.notes)
