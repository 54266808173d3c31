"""Calls of tools in a text: found whatever the pieces it comes in, and nothing else taken for
one."""

from __future__ import annotations

import json

import pytest

from draftproof.serve.tools import PARSERS, Call, parser_for

SIT = '{"name": "sit", "arguments": {"where": "on the mat", "long": 2}}'
RUN = '{"name": "run", "parameters": {}}'
CASES = [
    ("hermes", "no call at all, 1 < 2 <tool", "no call at all, 1 < 2 <tool", []),
    ("hermes", f"Well.\n<tool_call>\n{SIT}\n</tool_call>", "Well.", ["sit"]),
    ("hermes", f"<tool_call>{SIT}</tool_call>\n<tool_call>{SIT}</tool_call>", "", ["sit", "sit"]),
    ("hermes", f"<tool_call>{SIT}", "", ["sit"]),
    ("hermes", "<tool_call>{not json}</tool_call> so", "<tool_call>{not json}</tool_call> so", []),
    ("hermes", "<tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", []),
    ("hermes", "  spaces stay  ", "  spaces stay  ", []),
    (
        "hermes",
        "<tool_call>" + "[" * 5_000 + "</tool_call>",
        "<tool_call>" + "[" * 5_000 + "</tool_call>",
        [],
    ),
    ("llama3_json", RUN, "", ["run"]),
    ("llama3_json", f" <|python_tag|>{RUN}; {RUN}", "", ["run", "run"]),
    ("llama3_json", '{"answer": 1}', '{"answer": 1}', []),
    ("llama3_json", f"Text first. {RUN}", f"Text first. {RUN}", []),
    ("llama3_json", f"{RUN} and more", f"{RUN} and more", []),
]


@pytest.mark.parametrize("size", [1, 7, 10**6])
@pytest.mark.parametrize(("name", "said", "text", "names"), CASES)
def test_text_and_calls(name: str, said: str, text: str, names: list[str], size: int) -> None:
    parser = PARSERS[name]()
    found: list[str | Call] = []
    for place in range(0, len(said), size if len(said) < 1000 else 10**6):
        found += parser.feed(said[place : place + size] if len(said) < 1000 else said)
    found += parser.close()
    assert "".join(one for one in found if isinstance(one, str)) == text
    calls = [one for one in found if isinstance(one, Call)]
    assert [call.name for call in calls] == names
    assert all(isinstance(json.loads(call.arguments), dict) for call in calls)
    assert len({call.id for call in calls}) == len(calls)


def test_text_is_shown_as_it_comes() -> None:
    """Only what may begin a call is held back."""
    parser = PARSERS["hermes"]()
    assert [*parser.feed("a <too")] == ["a"]
    assert [*parser.feed("ls are not")] == [" <tools are not"]


def test_the_parser_follows_from_the_template() -> None:
    assert parser_for("{% if tools %}<tool_call>{% endif %}") == "hermes"
    assert parser_for('{% if tools %}{"name": n, "parameters": p}{% endif %}') == "llama3_json"
    assert parser_for("{{ messages }}") is None and parser_for(None) is None
