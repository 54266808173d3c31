"""Calls of tools in what a model writes: one parser for each way in which models are trained to
write them.

A parser is fed the text as it comes and gives back what is certain: text to be shown, and whole
calls. What begins like a call and is none comes out as the text it is.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"


@dataclass(frozen=True)
class Call:
    """name, and arguments as JSON text."""

    name: str
    arguments: str
    id: str = field(default_factory=_new_id)

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


class ToolParser(Protocol):
    """Of one answer."""

    def feed(self, text: str) -> Iterator[str | Call]:
        """What is certain now that `text` has come."""

    def close(self) -> Iterator[str | Call]:
        """The rest, when the answer has ended."""


class Hermes:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>` in running text: Hermes, Qwen 2.5,
    Qwen 3 and others. The space between text and a call belongs to neither."""

    START, END = "<tool_call>", "</tool_call>"

    def __init__(self) -> None:
        self._pending, self._is_inside, self._has_called = "", False, False

    def feed(self, text: str) -> Iterator[str | Call]:
        self._pending += text
        while True:
            before, found, after = self._pending.partition(
                self.END if self._is_inside else self.START
            )
            if not found:
                break
            if self._is_inside:
                self._has_called = True
                yield _call(before, "arguments") or f"{self.START}{before}{self.END}"
            elif before.strip():
                yield before.rstrip()
            self._pending, self._is_inside = after, not self._is_inside
        if not self._is_inside:
            shown = self._pending[: len(self._pending) - _begun(self._pending, self.START)].rstrip()
            if shown:
                yield shown
                self._pending = self._pending[len(shown) :]

    def close(self) -> Iterator[str | Call]:
        # some end the answer in place of the mark
        call = _call(self._pending, "arguments") if self._is_inside else None
        rest = f"{self.START}{self._pending}" if self._is_inside else self._pending
        self._pending = ""
        if call is not None:
            yield call
        elif rest.strip() or (rest and not self._has_called):
            yield rest


class LlamaJson:
    """An answer that is nothing but `{"name": …, "parameters": {…}}`, several with a semicolon
    between them: Llama 3."""

    def __init__(self) -> None:
        self._pending, self._is_text = "", False

    def feed(self, text: str) -> Iterator[str | Call]:
        self._pending += text
        start = self._pending.lstrip().removeprefix("<|python_tag|>")
        if self._is_text or (
            start and not start.startswith("{") and not "<|python_tag|>".startswith(start)
        ):
            self._is_text = True
            shown, self._pending = self._pending, ""
            if shown:
                yield shown

    def close(self) -> Iterator[str | Call]:
        rest, self._pending = self._pending, ""
        calls = list(_calls_in_a_row(rest.strip().removeprefix("<|python_tag|>")))
        if calls and None not in calls:
            yield from (call for call in calls if call is not None)
        elif rest.strip():
            yield rest


PARSERS: Mapping[str, Callable[[], ToolParser]] = {"hermes": Hermes, "llama3_json": LlamaJson}
"""By vLLM's names."""


def parser_for(template: str | None) -> str | None:
    """The parser that fits what a chat template teaches, or None."""
    if template is None:
        return None
    if "<tool_call>" in template:
        return "hermes"
    return "llama3_json" if "tools" in template and '"parameters"' in template else None


def _call(text: str, key: str) -> Call | None:
    """The call that `text` is, or None."""
    try:
        return _as_call(json.loads(text), key)
    except (ValueError, RecursionError):
        return None


def _as_call(value: Any, key: str) -> Call | None:
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("name"), str)
        or not isinstance(value.get(key, {}), dict)
    ):
        return None
    return Call(value["name"], json.dumps(value.get(key, {}), ensure_ascii=False))


def _calls_in_a_row(text: str) -> Iterator[Call | None]:
    decoder, place = json.JSONDecoder(), 0
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            yield None
            return
        yield _as_call(value, "parameters")
        rest = text[place:]
        stripped = rest.lstrip(" \n;")
        place += len(rest) - len(stripped)


def _begun(text: str, mark: str) -> int:
    """Length of the longest end of `text` with which `mark` begins."""
    return next(
        (
            length
            for length in range(min(len(mark), len(text)), 0, -1)
            if text.endswith(mark[:length])
        ),
        0,
    )
