"""Later turns of a conversation: asked behind plain decoding's answers, the same for every arm."""

from __future__ import annotations

import pytest

from draftproof import SamplingParams
from draftproof.decode.decoder import PlainDecoder
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from draftproof.workloads.conversations import with_later_turns
from draftproof.workloads.prompt_files import Encoded, Item, encode
from tiny import llama, word_tokenizer

TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, seed=0)


def asked(target: HFModel, *items: Item) -> list[Encoded]:
    return encode(items, target.tokenizer, target.vocab_size, target.max_length, 6)


@pytest.fixture(scope="module")
def target() -> HFModel:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return HFModel(llama(), tokenizer)


def chat(first: str, *later: str) -> Item:
    return Item([{"role": "user", "content": first}], "writing", "f line 1", None, later)


def test_a_turn_stands_behind_the_answer_to_the_one_before(target: HFModel) -> None:
    prompts = asked(target, chat("w1 w2", "w3", "w4"), chat("w5"))
    found = with_later_turns(prompts, target, GREEDY)
    assert [p.item.where for p in found] == [
        "f line 1",
        "f line 1, next turn",
        "f line 1, next turn, next turn",
        "f line 1",
    ]
    answer = PlainDecoder(target, target.tokenizer).generate(
        list(prompts[0].ids), SamplingParams(temperature=0, max_tokens=6)
    )
    messages = found[1].item.prompt
    assert [m["role"] for m in messages] == ["user", "assistant", "user"]  # type: ignore[index]
    assert messages[1]["content"] == answer.text and messages[2]["content"] == "w3"  # type: ignore[index]
    assert found[1].item.workload == "writing" and not found[2].item.later
    assert found[1].ids[: len(prompts[0].ids)] == prompts[0].ids and len(found[2].ids) > len(
        found[1].ids
    )


def test_a_turn_that_no_longer_fits_names_its_line(target: HFModel) -> None:
    with pytest.raises(UsageError, match="f line 1, next turn: the prompt has"):
        with_later_turns(asked(target, chat("w1", " ".join(["w2"] * 200))), target, GREEDY)
