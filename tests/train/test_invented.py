"""Prompts the target makes up itself: the user's turn of its own chat template, kept by number."""

from __future__ import annotations

import json

import pytest

from draftproof.decode.base import PlainDecoder
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from draftproof.train.invented import Inventing, invent, opening_of_a_question
from draftproof.train.prompts import read_prompts
from tiny import llama, word_tokenizer

HOW = Inventing(40, temperature=1.5, max_tokens=60, batch_size=8)


@pytest.fixture(scope="module")
def target():
    tokenizer = word_tokenizer()
    opened = "w5 {% if m['role'] == 'user' %}w6{% else %}w8{% endif %}"
    tokenizer.chat_template = (
        "{% for m in messages %}" + opened + " {{ m['content'] }} w7 {% endfor %}w5 w8"
    )
    return HFModel(llama(eos_token_id=7), tokenizer, name="tiny", check=False)


def test_questions_are_what_the_target_writes_as_the_user(target, tmp_path):
    path = tmp_path / "prompts.jsonl"
    kept = invent(target, target.tokenizer, HOW, path)
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert kept == len(entries) == len(read_prompts(path)) > 3
    opening = opening_of_a_question(target.tokenizer)
    assert target.tokenizer.decode(opening) == "w5 w6"
    for entry in entries:
        alone = PlainDecoder(target).generate(opening, HOW.params(entry["number"]))
        assert alone.finish_reason == "stop"
        assert (
            target.tokenizer.decode(alone.token_ids, skip_special_tokens=True).strip()
            == entry["prompt"]
        )
        assert len(entry["prompt"].split()) >= 3
    assert len({entry["prompt"] for entry in entries}) == kept


def test_an_interrupted_run_ends_in_the_same_questions(target, tmp_path):
    invent(target, target.tokenizer, HOW, tmp_path / "whole")
    invent(target, target.tokenizer, Inventing(15, 1.5, 60, batch_size=3), tmp_path / "parts")
    torn = (tmp_path / "parts").read_bytes()[:-9]
    (tmp_path / "parts").write_bytes(torn)
    invent(target, target.tokenizer, HOW, tmp_path / "parts")
    assert sorted((tmp_path / "parts").read_text().splitlines()) == sorted(
        (tmp_path / "whole").read_text().splitlines()
    )


def test_what_cannot_be_asked_is_refused(target, tmp_path):
    bare = word_tokenizer()
    with pytest.raises(UsageError, match="no chat template"):
        invent(target, bare, HOW, tmp_path / "p")
    bare.chat_template = "{{ messages[0]['content'] }}"
    with pytest.raises(UsageError, match="nothing before the user's words"):
        invent(target, bare, HOW, tmp_path / "p")
    (tmp_path / "other").write_text('{"prompt": "mine"}\n')
    with pytest.raises(UsageError, match="line 1 is no question made up before"):
        invent(target, target.tokenizer, HOW, tmp_path / "other")
    assert (tmp_path / "other").read_text() == '{"prompt": "mine"}\n'
