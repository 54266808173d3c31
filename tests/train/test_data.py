"""Training texts: prompts from files and from the built-in kinds, answers the target writes, shards
that survive interruptions."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from draftproof import SamplingParams
from draftproof.decode.base import PlainDecoder
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from draftproof.train import builtin, store
from draftproof.train.answers import Writing, write_answers
from draftproof.train.mixture import gather
from draftproof.train.prompts import TrainPrompt, read_prompts
from draftproof.train.store import Text, TextWriter, read_about, read_texts, shortened
from tiny import llama, word_tokenizer


@pytest.fixture(scope="module")
def target():
    tokenizer = word_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{% set said = m.role == 'assistant' %}{{ 'w1 ' if said "
        "}}{{ m['content'] }} "
        "{% for call in m.tool_calls %}w50 {{ call.function.name }} {% endfor %}{{ 'w7 "
        "w2 ' if said }}{% endfor %}"
        "{% for tool in tools or [] %}w51 {{ tool.function.name }} {% endfor %}{{ 'w1' "
        "if add_generation_prompt }}"
    )
    return HFModel(llama(eos_token_id=7), tokenizer, name="tiny", check=False)


def prompts(count):
    return [TrainPrompt.ask(f"w{i % 50} w{i % 7} w{i % 3}", "words") for i in range(count)]


HOW = Writing(max_tokens=9, max_prompt_tokens=12, batch_size=4)


def test_answers_are_plain_decodings_whatever_the_batch(target, tmp_path):
    for name, size in (("one", 1), ("five", 5)):
        how = Writing(max_tokens=9, max_prompt_tokens=12, batch_size=size)
        writer = TextWriter(tmp_path / name, how.about(target), 64)
        assert write_answers(target, target.tokenizer, prompts(12), writer, how) == 12
    texts = read_texts(tmp_path / "one")
    assert texts == read_texts(tmp_path / "five")
    assert {text.temperature for text in texts} <= {0.0, 0.7, 1.0}
    assert len({text.seed for text in texts}) == len(texts)
    text = texts[0]
    params = SamplingParams(temperature=text.temperature, max_tokens=9, seed=text.seed)
    expected = PlainDecoder(target).generate(list(text.tokens[: text.prompt]), params)
    assert text.tokens[text.prompt :] == expected.token_ids
    assert text.finish == expected.finish_reason


def test_an_interrupted_run_goes_on_and_ends_in_the_same_texts(target, tmp_path):
    whole = TextWriter(tmp_path / "whole", HOW.about(target), 64)
    write_answers(target, target.tokenizer, prompts(10), whole, HOW)
    first = TextWriter(tmp_path / "parts", HOW.about(target), 64)
    write_answers(target, target.tokenizer, prompts(4), first, HOW)
    index, tokens = tmp_path / "parts" / "0000.jsonl", tmp_path / "parts" / "0000.tokens"
    index.write_bytes(index.read_bytes()[:-20])  # a line torn in the middle
    # and tokens of an answer without a line
    tokens.write_bytes(tokens.read_bytes() + b"\x01\x02\x03")
    second = TextWriter(tmp_path / "parts", HOW.about(target), 64)
    assert len(second.done) == 3
    assert write_answers(target, target.tokenizer, prompts(10), second, HOW) == 7
    assert read_texts(tmp_path / "parts") == read_texts(tmp_path / "whole")
    assert write_answers(target, target.tokenizer, prompts(10), second, HOW) == 0


def test_parts_share_a_folder_and_shards_have_a_size(target, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "ANSWERS_PER_SHARD", 3)
    for part in ("a-", "b-"):
        writer = TextWriter(tmp_path, HOW.about(target), 64, part)
        mine = [prompt for i, prompt in enumerate(prompts(8)) if i % 2 == (part == "b-")]
        write_answers(target, target.tokenizer, mine, writer, HOW)
    assert sorted(file.name for file in tmp_path.glob("*.jsonl")) == [
        f"{p}-000{n}.jsonl" for p in "ab" for n in (0, 1)
    ]
    assert len(read_texts(tmp_path)) == 8
    assert np.fromfile(tmp_path / "a-0000.tokens", "<u2").max() < 64
    again = TextWriter(tmp_path, HOW.about(target), 64, "a-")
    again.append(Text("f" * 16, "x", (1, 2, 3), 1))
    assert len(read_texts(tmp_path)) == 9


def test_prompts_that_fail_are_told_and_tried_again(target, tmp_path, monkeypatch):
    """Not counted as written, and not passed over in silence."""
    whole, said = PlainDecoder.as_finished, []

    def failing(self, *given, **more):
        for index, result in whole(self, *given, **more):
            bad = replace(result, outputs=(replace(result.outputs[0], error="memory ran out"),))
            yield index, bad if index == 1 else result

    monkeypatch.setattr(PlainDecoder, "as_finished", failing)
    writer = TextWriter(tmp_path, HOW.about(target), 64)
    assert write_answers(target, target.tokenizer, prompts(5), writer, HOW, warn=said.append) == 4
    assert said == [
        "1 of 5 prompts were not answered (memory ran out): the same command tries them again"
    ]
    monkeypatch.setattr(PlainDecoder, "as_finished", whole)
    assert (
        write_answers(target, target.tokenizer, prompts(5), writer, HOW, warn=said.append) == 1
        and len(said) == 1
    )


def test_a_folder_of_other_settings_or_of_nothing_is_refused(target, tmp_path):
    TextWriter(tmp_path, HOW.about(target), 64)
    with pytest.raises(UsageError, match="no texts yet"):
        read_texts(tmp_path)
    with pytest.raises(UsageError, match="written with max_tokens 9, not 8"):
        TextWriter(
            tmp_path, Writing(max_tokens=8, max_prompt_tokens=12, batch_size=4).about(target), 64
        )
    with pytest.raises(UsageError, match="no folder of training texts"):
        read_texts(tmp_path / "nowhere")
    (tmp_path / "data.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(UsageError, match="another format"):
        read_about(tmp_path)


def test_large_vocabularies_get_wide_ids(tmp_path):
    writer = TextWriter(tmp_path, {}, 150_000)
    writer.append(Text("0" * 16, "x", (149_999, 3, 70_000), 1, 0.7, 5, "stop"))
    assert read_texts(tmp_path) == [Text("0" * 16, "x", (149_999, 3, 70_000), 1, 0.7, 5, "stop")]


def test_an_answer_of_the_users_own_is_kept_and_long_prompts_are_left_out(target, tmp_path):
    own = TrainPrompt.ask("w4 w5", "mine", answer="w8 w9")
    writer = TextWriter(tmp_path, HOW.about(target), 64)
    long = TrainPrompt.ask(" ".join(["w3"] * 30), "long")
    assert write_answers(target, target.tokenizer, [own, long], writer, HOW) == 1
    (text,) = read_texts(tmp_path)
    assert text.tokens == (4, 5, 1, 8, 9, 7) and text.prompt == 3 and text.seed is None
    with pytest.raises(UsageError, match="no prompt has at most 12 tokens"):
        write_answers(target, target.tokenizer, [long], writer, HOW)


CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"function": {"name": "w9", "arguments": {}}}],
}


@pytest.mark.parametrize(
    ("line", "tokens", "prompt"),
    [
        (
            {
                "messages": [
                    {"role": "user", "content": "w4"},
                    {"role": "assistant", "content": "w8"},
                ]
            },
            (4, 1, 8, 7),
            2,
        ),
        ({"messages": [{"role": "user", "content": "w4"}, CALLS]}, (4, 1, 50, 9, 7), 2),
        ({"messages": [{"role": "user", "content": "w4"}], "answer": "w8"}, (4, 1, 8, 7), 2),
    ],
)
def test_a_chat_that_ends_with_the_assistant_is_trained_on_as_its_template_shows_it(
    target, tmp_path, line, tokens, prompt
):
    """It got a second turn of the assistant, calls were dropped, and `content: null` was the word
    None. What the template puts behind the end token is left out: the model never writes it."""
    (tmp_path / "prompts.jsonl").write_text(json.dumps(line))
    writer = TextWriter(tmp_path / "texts", HOW.about(target), 64)
    assert (
        write_answers(
            target, target.tokenizer, read_prompts(tmp_path / "prompts.jsonl"), writer, HOW
        )
        == 1
    )
    (text,) = read_texts(tmp_path / "texts")
    assert (text.tokens, text.prompt) == (tokens, prompt)


def test_calls_and_tools_before_the_answer_are_in_the_prompt(target, tmp_path):
    chat = [{"role": "user", "content": "w4"}, CALLS, {"role": "tool", "content": "w3"}]
    line = {"messages": chat, "tools": [{"type": "function", "function": {"name": "w9"}}]}
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps(line))
    write_answers(
        target,
        target.tokenizer,
        read_prompts(file),
        TextWriter(tmp_path / "texts", HOW.about(target), 64),
        HOW,
    )
    (text,) = read_texts(tmp_path / "texts")
    assert text.tokens[: text.prompt] == (4, 1, 50, 9, 7, 2, 3, 51, 9, 1)


def test_a_chat_that_the_template_cannot_render_is_refused_with_its_line(target, tmp_path):
    plain = word_tokenizer()
    user = {"role": "user", "content": "w4"}
    file, writer = tmp_path / "prompts.jsonl", TextWriter(tmp_path / "texts", HOW.about(target), 64)
    for template, line, said in (
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            {"messages": [user, CALLS, user]},
            "reads no tool_calls",
        ),
        (
            "{{ raise_exception('no system') }}",
            {"messages": [user]},
            "refuses this chat: no system",
        ),
        (
            "{% for m in messages %}{{ m.content }} {% endfor %}w1",
            {"prompt": "w4", "answer": "w5"},
            "does not show this answer",
        ),
    ):
        plain.chat_template = template
        file.write_text("\n" + json.dumps(line))
        with pytest.raises(UsageError, match=f"prompts.jsonl, line 2: .*{said}"):
            write_answers(target, plain, read_prompts(file), writer, HOW)


def test_keys_of_plain_chats_are_those_of_older_folders():
    assert TrainPrompt.ask("w4 w5", "x").key == "796129be111f8017"


def test_shortening_cuts_answers_and_leaves_out_bare_prompts():
    texts = [Text("0", "x", tuple(range(10)), 3), Text("1", "x", tuple(range(10)), 6)]
    assert shortened(texts, 6) == [Text("0", "x", tuple(range(6)), 3)]


def test_prompt_files(tmp_path):
    file = tmp_path / "prompts.jsonl"
    lines = [
        {"prompt": "one\u2028line", "source": "s"},
        {
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "two"},
            ],
            "answer": "yes",
        },
    ]
    file.write_text(
        "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n", encoding="utf-8"
    )
    one, two = read_prompts(file)
    file.write_text("\ufeff" + file.read_text(encoding="utf-8"), encoding="utf-8")
    assert read_prompts(file) == [one, two], "a mark of byte order is no part of the first line"
    assert (
        one.messages == ({"role": "user", "content": "one\u2028line"},)
        and one.source == "s"
        and one.answer is None
    )
    assert [message["role"] for message in two.messages] == [
        "system",
        "user",
    ] and two.answer == "yes"
    assert one.key != two.key and len(one.key) == 16
    for content, said in (
        ("{", "line 1 is not JSON"),
        ("{}", "either the key 'prompt' or the key 'messages'"),
        ('{"prompt": " "}', "it is a text"),
        ('{"prompt": "x", "answer": 3}', "text to train on"),
        (
            '{"messages": [{"role": "user"}]}',
            "line 1: chat message 0 needs the keys 'role' and 'content'",
        ),
        ('{"messages": []}', "line 1: 'messages' is a non-empty list"),
        ('{"prompt": "x", "tools": {}}', "line 1: tools is"),
        (
            '{"messages": [{"role": "assistant", "content": "x"}], "answer": "y"}',
            "line 1: 'messages' ends with the assistant",
        ),
        ("", "holds no prompt"),
    ):
        file.write_text(content)
        with pytest.raises(UsageError, match=said):
            read_prompts(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_prompts(tmp_path / "nowhere.jsonl")


def test_the_mixture_is_without_duplicates_and_in_an_order_of_its_own(tmp_path, monkeypatch):
    library = (tuple(f"def f{i}():\n    return {i}" for i in range(30)), ("a passage", "another"))
    monkeypatch.setattr(builtin, "library", lambda: library)
    mixed = gather()
    assert {prompt.source for prompt in mixed} == {"chat", "code", "summary"}
    assert len({prompt.key for prompt in mixed}) == len(mixed)
    assert gather() == mixed and gather(limit=5) == mixed[:5]
    assert len({prompt.source for prompt in mixed[:300]}) >= 2
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "x"}\n{"prompt": "x"}\n')
    assert [prompt.source for prompt in gather(file)] == ["file"]
    assert {prompt.source for prompt in gather(file, kinds=("code",))} == {"file", "code"}
    with pytest.raises(UsageError, match="no built-in kind of prompt 'poems'"):
        gather(kinds=("poems",))


def test_the_library_gives_whole_functions(monkeypatch, tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        'class A:\n    def f(self, x):\n        """short"""\n        y = x\n        z = '
        "y\n        return z\n\n"
        "def g():\n    return 1\n",
    )
    monkeypatch.setattr(builtin.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    builtin.library.cache_clear()
    functions, passages = builtin.library()
    builtin.library.cache_clear()
    assert functions == ('def f(self, x):\n    """short"""\n    y = x\n    z = y\n    return z',)
    assert passages == ()
