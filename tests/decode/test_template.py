"""Chats through the model's own template: what is given is rendered whole by every way in, or
refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.decode.template import OPTION_NAMES, TemplateOptions, render
from draftproof.errors import UsageError
from tiny import llama
from tokenizers_in_code import byte_level

THINKS = (
    "{% if tools %}[{{ tools | map(attribute='function.name') | join(' ') }}]{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content if m.content }}"
    "{% for c in m.tool_calls %}!{{ c.function.name }}{{ c.function.arguments | tojson "
    "}}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and not "
    "enable_thinking %}<think/>{% endif %}"
    "{% endif %}"
)
PLAIN = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<|end|>{% endfor %}{% if "
    "add_generation_prompt %}<a>{% endif %}"
)
ADDS = PLAIN.replace("{{ m['content'] }}", "{{ '' + m['content'] }}")
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not "
    "supported') }}{% endif %}"
) + PLAIN
LADDER = (
    "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.content }}{% "
    "endif %}{% endfor %}"
)
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
    }
]
USER = {"role": "user", "content": "Hi"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"function": {"name": "weather", "arguments": {"at": "Bonn"}}}],
}
GREEDY = SamplingParams(temperature=0, max_tokens=3)


def tokenizer(template: str = THINKS) -> Any:
    made = byte_level(size=299)
    made.chat_template = template
    return made


def rendered(template: str, *messages: Any, **options: Any) -> str:
    return render(messages, tokenizer(template), TemplateOptions.of(options))


@pytest.mark.parametrize(
    ("messages", "options", "text"),
    [
        ([USER], {}, "<user>Hi<|end|><assistant>"),
        ([USER], {"tools": TOOLS}, "[weather]<user>Hi<|end|><assistant>"),
        (
            [USER],
            {"chat_template_kwargs": {"enable_thinking": False}},
            "<user>Hi<|end|><assistant><think/>",
        ),
        ([USER], {"add_generation_prompt": False}, "<user>Hi<|end|>"),
        (
            [USER, {"role": "assistant", "content": "Sure:"}],
            {"continue_final_message": True},
            "<user>Hi<|end|><assistant>Sure:",
        ),
        ([USER, CALL], {}, '<user>Hi<|end|><assistant>!weather{"at": "Bonn"}<|end|><assistant>'),
        ([USER, {"role": "tool", "content": "9"}], {}, "<user>Hi<|end|><tool>9<|end|><assistant>"),
    ],
)
def test_every_option_is_the_templates_text(
    messages: list[Any], options: dict[str, Any], text: str
) -> None:
    assert rendered(THINKS, *messages, **options) == text


def test_an_assistant_without_content_says_nothing_and_never_none() -> None:
    """`content: null` was rendered as the word None, and a missing one was refused."""
    called = '<user>Hi<|end|><assistant>!weather{"at": "Bonn"}<|end|><assistant>'
    without = {key: value for key, value in CALL.items() if key != "content"}
    # the OpenAI API's form
    as_text = [{"function": {"name": "weather", "arguments": '{"at": "Bonn"}'}}]
    for message in (CALL, without, CALL | {"content": ""}, CALL | {"tool_calls": as_text}):
        assert rendered(THINKS, USER, message) == called
    silent = {"role": "assistant", "content": None, "reasoning_content": "hm"}
    for template in (PLAIN, ADDS):
        assert (
            rendered(template, USER, silent, USER)
            == "<user>Hi<|end|><assistant><|end|><user>Hi<|end|><a>"
        )
    assert "None" in rendered(PLAIN, USER | {"content": "None"}, silent, USER)


@pytest.mark.parametrize(
    ("template", "messages", "options", "sentence"),
    [
        (PLAIN, [USER], {"tools": TOOLS}, "chat template takes no tools"),
        (PLAIN, [USER, CALL], {}, "reads no tool_calls, and message 1 has some"),
        (THINKS, [USER], {"chat_template_kwargs": {"thinking": 1}}, "reads no variable 'thinking'"),
        (THINKS, [USER], {"chat_template_kwargs": {"role": 1}}, "reads no variable 'role'"),
        (
            THINKS,
            [USER],
            {"chat_template_kwargs": {"tools": TOOLS}},
            "'tools', which is an argument of its own",
        ),
        (
            NO_SYSTEM,
            [{"role": "system", "content": "x"}, USER],
            {},
            "refuses this chat: System role not supported",
        ),
        (
            LADDER,
            [USER, {"role": "tool", "content": "9"}],
            {},
            "leaves message 1 out: it knows no role 'tool'",
        ),
        (THINKS, [{"role": "user"}], {}, "message 0 needs the keys 'role' and 'content'"),
        (THINKS, [USER, {"role": "assistant", "content": None}], {}, "message 1 needs"),
        (THINKS, [{"content": "x"}], {}, "message 0 needs"),
    ],
)
def test_what_a_template_cannot_render_is_refused(
    template: str, messages: list[Any], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        rendered(template, *messages, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tool": []}, f"'tool' is no option of a chat; allowed: {', '.join(OPTION_NAMES)}"),
        ({"tools": []}, "tools is"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs is"),
        ({"continue_final_message": 1}, "continue_final_message is 1; allowed: true or false"),
        ({"add_generation_prompt": "no"}, "add_generation_prompt is 'no'; allowed"),
        (
            {"add_generation_prompt": True, "continue_final_message": True},
            "add_generation_prompt opens a new turn",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("[", r"\[")):
        TemplateOptions.of(options)


def test_every_way_in_reads_the_same_ids() -> None:
    words = tokenizer()
    decoder = SpeculativeDecoder(None, llama(vocab_size=len(words)), words)
    chat: dict[str, Any] = {"tools": TOOLS, "chat_template_kwargs": {"enable_thinking": False}}
    expected = tuple(words.encode("[weather]<user>Hi<|end|><assistant><think/>"))
    with (
        decoder.session() as session,
        decoder.chat(**chat) as conversation,
        decoder.plain.chat(**chat) as plain,
    ):
        ways: list[Callable[[], Any]] = [
            lambda: decoder.generate([USER], GREEDY, **chat),
            lambda: decoder.plain.generate([USER], GREEDY, **chat),
            lambda: decoder.generate([[USER], [USER]], GREEDY, **chat)[1],
            lambda: next(iter(decoder.as_finished([[USER]], GREEDY, **chat)))[1],
            lambda: session.generate([USER], GREEDY, **chat),
            lambda: conversation.send("Hi", GREEDY),
            lambda: plain.send("Hi", GREEDY),
        ]
        assert conversation.prompt_ids("Hi") == expected
        assert all(way().prompt_token_ids == expected for way in ways)
    assert decoder.batch_bytes([[USER]], GREEDY, **chat)[0] == 1
    streamed = "".join(piece.text for piece in decoder.stream([USER], GREEDY, **chat))
    assert (
        streamed
        == decoder.generate([USER], GREEDY, **chat).text
        == decoder.generate(list(expected), GREEDY).text
    )
    for prompt in ("Hi", [1, 2]):
        with pytest.raises(
            UsageError, match="tools is of a chat, and the prompt is no list of chat messages"
        ):
            decoder.generate(prompt, GREEDY, tools=TOOLS)


def test_python_functions_are_tools_as_in_transformers() -> None:
    def weather(at: str) -> str:
        """
        The weather somewhere.

        Args:
            at: where
        """
        return at

    assert rendered(THINKS, USER, tools=[weather]).startswith("[weather]")
