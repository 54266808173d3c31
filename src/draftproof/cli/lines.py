"""`prompts.jsonl`: many prompts, one JSON value a line, all checked before any work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import UsageError

PROMPT_KEYS = ("prompt", "messages", "prompt_token_ids")
FORMS = 'a line is a string, or an object with "prompt", "messages" or "prompt_token_ids"'


@dataclass(frozen=True)
class Line:
    """number: in the file, from 1. id: the caller's own mark, or None. prompt: a string, chat
    messages or token ids. sampling: the fields of SamplingParams that this line sets. chat: those
    of TemplateOptions."""

    number: int
    id: Any
    prompt: Any
    sampling: Mapping[str, Any]
    chat: Mapping[str, Any]


def is_many(file: Path | None) -> bool:
    """Whether `--file` names prompts a line rather than one prompt."""
    return file is not None and file.suffix == ".jsonl"


def read_lines(path: Path, sampling: Mapping[str, Any]) -> list[Line]:
    """The prompts of a file; blank lines are left out. sampling: what the flags set, under what a
    line sets itself.

    UsageError with the file's name and the line's number: not JSON, no prompt or several, an
    unknown key, an impossible value; no prompt at all."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the prompts {path} cannot be read: {error}") from error
    try:
        lines = [
            _line(number, raw, sampling)
            for number, raw in enumerate(text.split("\n"), 1)
            if raw.strip()
        ]
    except UsageError as error:
        raise UsageError(f"{path} {error}") from error
    if not lines:
        raise UsageError(f"{path} holds no prompt; {FORMS}")
    return lines


def _line(number: int, raw: str, sampling: Mapping[str, Any]) -> Line:
    from draftproof.core.params import SamplingParams
    from draftproof.decode.template import OPTION_NAMES, TemplateOptions

    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"line {number} is not JSON: {error}") from error
    if isinstance(value, str):
        value = {"prompt": value}
    if not isinstance(value, Mapping):
        raise UsageError(f"line {number} is {type(value).__name__}; {FORMS}")
    given = [key for key in PROMPT_KEYS if key in value]
    if len(given) != 1:
        raise UsageError(f"line {number} has {' and '.join(given) or 'no prompt'}; {FORMS}")
    expected = str if given[0] == "prompt" else list
    if not isinstance(value[given[0]], expected) or not value[given[0]]:
        raise UsageError(
            f"line {number}: {given[0]} is {value[given[0]]!r}; it is a non-empty "
            f"{expected.__name__}"
        )
    own = {
        key: field for key, field in value.items() if key not in (*PROMPT_KEYS, *OPTION_NAMES, "id")
    }
    chat = {key: field for key, field in value.items() if key in OPTION_NAMES}
    try:
        TemplateOptions.of(chat)
        SamplingParams.from_dict({**sampling, **own})
    except UsageError as error:
        raise UsageError(f"line {number}: {error}") from error
    return Line(number, value.get("id"), value[given[0]], own, chat)
