"""Bytes of tokens and tokens of bytes: nothing added, nothing cleaned, nothing lost."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerFast

from draftproof.errors import UsageError
from draftproof.models.spelling import TokenizerSpelling, byte_letters, runs, whole_characters
from draftproof.models.transcript import Transcript, Vocabularies, target_tokens
from tiny import word_tokenizer
from tokenizers_in_code import HARD, TEXT, byte_level, sentencepiece

KINDS = {"byte level": byte_level, "sentencepiece": sentencepiece}


def spell(spelling, ids):
    return b"".join(spelling.spelled(token) or b"" for token in ids)


def between(target, draft, **ends):
    return Vocabularies(
        TokenizerSpelling(target),
        TokenizerSpelling(draft),
        target_size=len(target),
        draft_size=len(draft),
        **ends,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_encoded_spells_the_same_bytes(kind):
    spelling = TokenizerSpelling(KINDS[kind]())
    for text in (HARD, TEXT, " leading", "", "\n", "a\u0301"):
        assert spell(spelling, spelling.encode(text.encode())) == text.encode()
    broken = "caf\u00e9 \U0001f600".encode()[:-1]
    assert spell(spelling, spelling.encode(broken)) == broken


@pytest.mark.parametrize("kind", KINDS)
def test_a_special_token_in_the_text_is_text(kind):
    tokenizer = KINDS[kind]()
    spelling = TokenizerSpelling(tokenizer)
    assert not set(spelling.encode(tokenizer.eos_token.encode())) & {tokenizer.eos_token_id}
    assert spelling.spelled(tokenizer.eos_token_id) is None
    assert spelling.specials[tokenizer.eos_token] == tokenizer.eos_token_id


def test_what_the_tokenizers_add_is_known():
    assert TokenizerSpelling(byte_level()).starts == ()
    assert not TokenizerSpelling(byte_level()).leads_with_space
    tokenizer = sentencepiece()
    assert TokenizerSpelling(tokenizer).starts == (tokenizer.bos_token_id,)
    assert TokenizerSpelling(tokenizer).leads_with_space


def test_the_letters_for_bytes_are_gpt2s():
    letters = byte_letters()
    assert len(set(letters)) == 256
    assert (letters[ord("A")], letters[ord(" ")], letters[ord("\n")], letters[0xAD]) == (
        "A",
        "\u0120",
        "\u010a",
        "\u0143",
    )


def test_runs_and_whole_characters():
    assert list(runs(b"ab\xffc\xc3")) == ["ab", b"\xff", "c", b"\xc3"]
    emoji = "\U0001f600".encode()
    for cut in range(1, 4):
        assert whole_characters(b"ok" + emoji[:cut]) == b"ok"
    assert whole_characters(b"ok" + emoji) == b"ok" + emoji


def test_tokens_of_unknown_spelling_are_refused():
    with pytest.raises(UsageError, match="neither byte by byte nor in SentencePiece's way"):
        TokenizerSpelling(word_tokenizer())
    with pytest.raises(UsageError, match="is no fast tokenizer"):
        TokenizerSpelling(object())
    assert issubclass(PreTrainedTokenizerFast, object)


@pytest.mark.parametrize(
    "target, draft", [(byte_level, sentencepiece), (sentencepiece, byte_level)]
)
def test_shared_tokens_spell_alike_one_to_one(target, draft):
    pair = between(target(), draft())
    assert len(pair.draft_of) == len(pair.target_of) > 60
    for ours, theirs in pair.draft_of.items():
        assert pair.target.spelled(ours) == pair.draft.spelled(theirs) is not None
        assert pair.target_of[theirs] == ours


def test_end_tokens_correspond_by_their_part():
    target, draft = byte_level(), sentencepiece()
    pair = between(
        target, draft, target_ends=(target.eos_token_id,), draft_ends=(draft.eos_token_id,)
    )
    assert pair.draft_of[target.eos_token_id] == draft.eos_token_id


@pytest.mark.parametrize(
    "target, draft",
    [(byte_level, sentencepiece), (sentencepiece, byte_level), (byte_level, byte_level)],
)
def test_a_transcript_grown_token_by_token_is_the_text(target, draft):
    """Field report: one BOS only, the text byte for byte, no filler."""
    target, draft = target(), draft(280) if draft is byte_level else draft()
    pair = between(target, draft)
    lead = b" " * pair.target.leads_with_space
    context = [*pair.target.starts, *pair.target.encode(lead + (HARD + " " + TEXT).encode())]
    transcript, encoded_again = Transcript(between=pair), 0
    for length in range(1, len(context) + 1):
        before = transcript
        transcript = transcript.after(context[:length])
        text = spell(pair.target, context[:length])
        lead = pair.draft.leads_with_space - pair.target.leads_with_space
        expected = b" " * max(lead, 0) + text[max(-lead, 0) :]
        assert spell(pair.draft, transcript.ids) == expected
        assert transcript.ids[: len(pair.draft.starts)] == pair.draft.starts
        assert not set(transcript.ids[len(pair.draft.starts) :]) & set(pair.draft.specials.values())
        assert transcript.ids[: before.settled[1]] == before.ids[: before.settled[1]]
        encoded_again = max(encoded_again, length - before.settled[0])
    assert encoded_again < 90
    whole = Transcript(between=pair).after(context)
    assert whole.ids == transcript.ids


def test_special_tokens_are_carried_over_or_left_out():
    target, draft = byte_level(300), byte_level(280)
    pair = between(target, draft)
    context = [*target("one")["input_ids"], target.eos_token_id, *target("two")["input_ids"]]
    ids = Transcript(between=pair).after(context).ids
    assert ids.count(draft.eos_token_id) == 1
    other = between(target, sentencepiece())
    ids = Transcript(between=other).after(context).ids
    assert spell(other.draft, ids) == b" onetwo"


def test_a_text_is_continued_in_the_targets_own_tokens():
    target = byte_level()
    pair = between(target, sentencepiece())
    whole = target("The quick brown fox jumps over the lazy dog.")["input_ids"]
    for cut in range(1, len(whole)):
        rest = spell(pair.target, whole[cut:])
        assert target_tokens(pair, whole[:cut], rest) == whole[cut:]


def test_a_character_begun_in_the_context_is_finished():
    target = byte_level()
    pair = between(target, sentencepiece())
    emoji = "\U0001f600".encode()
    context = [*pair.target.encode(b"so "), *pair.target.encode(emoji[:2])]
    assert spell(pair.target, target_tokens(pair, context, emoji[2:])) == emoji[2:]
    assert spell(pair.draft, Transcript(between=pair).after(context).ids) == b" so " + emoji[:2]
