"""Where the prompt of a command comes from: the argument, a file, or standard input; and its chat
form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from draftproof.errors import UsageError


def read_prompt(argument: str | None, file: Path | None) -> str:
    """The prompt's text. One final line break of a file or of standard input is left out."""
    if argument is not None and file is not None:
        raise UsageError(
            "the prompt is given twice, as an argument and with --file: leave one of them out"
        )
    if argument is not None and argument != "-":
        text = _as_text(argument, "the prompt")
    elif file is not None and str(file) != "-":
        text = _file_text(file).removesuffix("\n")
    elif argument is None and file is None and sys.stdin.isatty():
        raise UsageError(
            "there is no prompt: give it as an argument, with --file FILE, or on standard input"
        )
    else:
        text = _decoded(sys.stdin.buffer.read(), "standard input").removesuffix("\n")
    if not text:
        raise UsageError("the prompt is empty; give at least one character")
    return text


def as_prompt(
    text: str, tokenizer: Any, *, system: str | None, raw: bool
) -> str | list[dict[str, str]]:
    """Chat messages when the model has a chat template and `raw` is off, else the text itself."""
    if raw or not getattr(tokenizer, "chat_template", None):
        if system is not None:
            raise UsageError("--system needs a model with a chat template, and this one has none")
        return text
    messages = [{"role": "user", "content": text}]
    return (
        messages
        if system is None
        else [{"role": "system", "content": _as_text(system, "--system")}, *messages]
    )


def with_prefill(messages: str | list[dict[str, str]], text: str) -> list[dict[str, str]]:
    """The chat with the beginning of the assistant's answer; UsageError where there is no chat."""
    if isinstance(messages, str):
        raise UsageError(
            "--prefill needs a model with a chat template, and this one has none: put it "
            "behind the prompt"
        )
    return [*messages, {"role": "assistant", "content": _as_text(text, "--prefill")}]


def check_file(file: Path) -> None:
    """UsageError when there is no file to read prompts from; - is standard input."""
    if str(file) != "-" and (not file.exists() or file.is_dir()):
        what = "it is a folder" if file.is_dir() else "there is no such file"
        raise UsageError(f"the prompt file {file} cannot be read: {what}")


def _file_text(file: Path) -> str:
    try:
        return _decoded(file.read_bytes(), str(file))
    except OSError as error:
        raise UsageError(
            f"the prompt file {file} cannot be read: {error.strerror or error}"
        ) from error


def _as_text(argument: str, what: str) -> str:
    """A command-line argument, whose bytes that are no UTF-8 Python hides as lone surrogates."""
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what} is not UTF-8 text: character {error.start} of the argument is none"
        ) from error
    return argument


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{where} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
