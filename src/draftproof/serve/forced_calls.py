"""Answers that have to be calls of tools: a grammar over the way in which a model writes them, with
each tool's own schema for its arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from draftproof.serve.errors import refuse
from draftproof.serve.schemas import ChatBody, NamedTool, Tool

SHAPES = {
    "hermes": ('<tool_call>\n{"name": ', ', "arguments": ', "}\n</tool_call>", "\n"),
    "llama3_json": ('{"name": ', ', "parameters": ', "}", "; "),
}
"""Parser -> what stands before a call's name, before its arguments, after them, and between two
calls."""
ANY_MODEL = "llama3_json"
"""How a call is written where nothing is known of how the model writes them."""
FREE = {"type": "object"}
"""Arguments of a tool that states no parameters."""


def is_forced(body: ChatBody) -> bool:
    """Whether the answer has to be a call."""
    return body.tool_choice == "required" or isinstance(body.tool_choice, NamedTool)


def call_grammar(body: ChatBody, parser: str) -> dict[str, Any]:
    """Structured outputs that hold an answer to calls: one of the tool that is named, or one or
    more of any. ApiError where the body binds the text in another way too, or names no tool of
    its own."""
    form = body.response_format
    if body.structured_outputs is not None or (form is not None and form.type != "text"):
        field = "response_format" if body.structured_outputs is None else "structured_outputs"
        refuse(field, f"{field} and tool_choice both bind the text: leave one of them out")
    tools = _allowed(body)
    several = body.tool_choice == "required" and body.parallel_tool_calls is not False
    return {"grammar": _lark(tools, parser, several)}


def _allowed(body: ChatBody) -> list[Tool]:
    tools = body.tools or []
    if not isinstance(body.tool_choice, NamedTool):
        return tools
    name = body.tool_choice.function.name
    found = [tool for tool in tools if tool.function.name == name]
    if not found:
        known = ", ".join(tool.function.name for tool in tools)[:200]
        refuse("tool_choice", f"tool_choice names {name[:80]!r}, and the tools are {known}")
    return found[:1]


def _lark(tools: Sequence[Tool], parser: str, several: bool) -> str:
    """In llguidance's Lark, where `%json` holds a rule to a schema."""
    before, between, after, apart = map(json.dumps, SHAPES[parser])
    more = f" ({apart} call)*" if several else ""
    lines = [
        f"start: call{more}",
        f"call: {' | '.join(f'call_{number}' for number in range(len(tools)))}",
    ]
    for number, tool in enumerate(tools):
        schema = json.dumps(getattr(tool.function, "parameters", None) or FREE)
        name = json.dumps(json.dumps(tool.function.name, ensure_ascii=False))
        lines.append(f"call_{number}: {before} {name} {between} arguments_{number} {after}")
        lines.append(f"arguments_{number}: %json {schema}")
    return "\n".join(lines)
