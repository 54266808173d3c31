"""A file of prompts for training: one JSON object a line, with `prompt` (text) or `messages` (a chat). With an `answer` too,
that text is trained on and the target writes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.errors import UsageError


@dataclass(frozen=True)
class TrainPrompt:
    """One prompt. source: its kind, for counting. answer: a text of the user's own to train on, if given."""

    messages: tuple[tuple[str, str], ...]
    source: str
    answer: str | None = None

    @classmethod
    def ask(cls, text: str, source: str, answer: str | None = None) -> TrainPrompt:
        """One question of a user."""
        return cls((("user", text),), source, answer)

    @property
    def chat(self) -> list[dict[str, str]]:
        """As tokenizers want it."""
        return [{"role": role, "content": content} for role, content in self.messages]

    @property
    def key(self) -> str:
        """Names the prompt by its content: the same in every run, whatever stands around it."""
        return hashlib.sha256(json.dumps(self.messages).encode()).hexdigest()[:16]


def read_prompts(path: str | Path) -> list[TrainPrompt]:
    """The prompts of a JSON-lines file. UsageError: not readable, empty, a line that is no prompt (with its number)."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")  # not splitlines(): JSON may hold U+2028
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the prompt file {path} cannot be read: {error}") from error
    prompts = [_parsed(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UsageError(f'{path} holds no prompt; give one JSON object a line, like {{"prompt": "..."}}')
    return prompts


def _parsed(line: str, where: str) -> TrainPrompt:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON ({error})") from error
    if not isinstance(value, Mapping) or ("prompt" in value) == ("messages" in value):
        raise UsageError(f"{where} needs either the key 'prompt' or the key 'messages'")
    answer = value.get("answer")
    if answer is not None and not (isinstance(answer, str) and answer):
        raise UsageError(f"{where}: 'answer' is {answer!r}; it is the text to train on")
    source = str(value.get("source", "file"))
    if "prompt" in value:
        if not isinstance(value["prompt"], str) or not value["prompt"].strip():
            raise UsageError(f"{where}: 'prompt' is {value['prompt']!r}; it is a text")
        return TrainPrompt.ask(value["prompt"], source, answer)
    return TrainPrompt(_messages(value["messages"], where), source, answer)


def _messages(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    good = isinstance(value, list) and value and all(isinstance(m, Mapping) and {"role", "content"} <= set(m) for m in value)
    if not good:
        raise UsageError(f"{where}: 'messages' is a list of objects with the keys 'role' and 'content'")
    return tuple((str(message["role"]), str(message["content"])) for message in value)
