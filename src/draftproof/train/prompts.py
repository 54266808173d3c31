"""A file of prompts for training: one JSON object a line, with `prompt` (text) or `messages` (a
chat), and what its template takes beside them. With an `answer`, or a chat that ends with the
assistant, that text is trained on and the target writes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftproof.decode.template import OPTION_NAMES, Message, TemplateOptions, check_messages
from draftproof.errors import UsageError


@dataclass(frozen=True)
class TrainPrompt:
    """One prompt. source: its kind, for counting. answer: a text of the user's own to train on, if
    given. chat: options of the chat template, by the names of `TemplateOptions`. where: file and
    line, for messages."""

    messages: tuple[Message, ...]
    source: str
    answer: str | None = None
    chat: Mapping[str, Any] = field(default_factory=dict)
    where: str = field(default="", compare=False)

    @classmethod
    def ask(cls, text: str, source: str, answer: str | None = None) -> TrainPrompt:
        """One question of a user."""
        return cls(({"role": "user", "content": text},), source, answer)

    @property
    def answered(self) -> tuple[Message, ...] | None:
        """The chat with the answer to train on as its last message; None where the target is to
        write one."""
        if self.answer is not None:
            return (*self.messages, {"role": "assistant", "content": self.answer})
        ends = self.messages[-1]["role"] == "assistant" and not self.chat.get(
            "continue_final_message"
        )
        return self.messages if ends else None

    @property
    def key(self) -> str:
        """Names the prompt by its content: the same in every run, whatever stands around it."""
        plain = not self.chat and all(
            set(message) == {"role", "content"} for message in self.messages
        )
        content: Any = (
            [(m["role"], m["content"]) for m in self.messages]
            if plain
            else (self.messages, self.chat)
        )
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def read_prompts(path: str | Path) -> list[TrainPrompt]:
    """The prompts of a JSON-lines file. UsageError: not readable, empty, a line that is no prompt
    (with its number)."""
    try:
        # not splitlines(): JSON may hold U+2028
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the prompt file {path} cannot be read: {error}") from error
    prompts = [
        _parsed(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not prompts:
        raise UsageError(
            f'{path} holds no prompt; give one JSON object a line, like {{"prompt": "..."}}'
        )
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
    messages: Any = value.get("messages")
    if "prompt" in value:
        if not isinstance(value["prompt"], str) or not value["prompt"].strip():
            raise UsageError(f"{where}: 'prompt' is {value['prompt']!r}; it is a text")
        messages = [{"role": "user", "content": value["prompt"]}]
    chat = {name: value[name] for name in OPTION_NAMES if name in value}
    try:
        check_messages(messages)
        TemplateOptions.of(chat)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    if answer is not None and messages[-1]["role"] == "assistant":
        raise UsageError(
            f"{where}: 'messages' ends with the assistant, and 'answer' is another "
            "answer: leave one of them out"
        )
    return TrainPrompt(tuple(messages), source, answer, chat, where)
