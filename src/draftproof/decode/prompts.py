"""What counts as a prompt: a string, a list of token ids, or a list of chat messages; and what
counts as several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftproof.decode.template import NO_OPTIONS, Message, TemplateOptions, render
from draftproof.errors import UsageError

Prompt = str | Sequence[int] | Sequence[Message]


def is_batch(prompt: Prompt | Sequence[Prompt]) -> bool:
    """Whether `prompt` is a list of prompts (strings, lists or arrays of ids, lists of messages)
    rather than one."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        return False
    return bool(prompt) and all(
        isinstance(item, (str, Sequence)) or getattr(item, "ndim", 0) > 0 for item in prompt
    )


def is_chat(prompt: Any) -> bool:
    """Whether `prompt` is one list of chat messages."""
    return (
        isinstance(prompt, Sequence)
        and bool(prompt)
        and all(isinstance(item, Mapping) for item in prompt)
    )


def prompt_ids(
    prompt: Any, tokenizer: Any, vocab_size: int, options: TemplateOptions = NO_OPTIONS
) -> tuple[int, ...]:
    """Token ids of one prompt. A string is encoded as it is, chat messages through the tokenizer's
    template with the turn of the assistant opened, or as `options` say. UsageError: nothing to
    read, ids outside the vocabulary, no tokenizer for text, options beside a prompt that is no
    chat."""
    if options != NO_OPTIONS and not is_chat(prompt):
        raise UsageError(
            f"{options.given[0]} is of a chat, and the prompt is no list of chat messages"
        )
    if isinstance(prompt, str):
        ids = _needs(tokenizer, "a string").encode(prompt)
    elif is_chat(prompt):
        ids = chat_ids(prompt, _needs(tokenizer, "a list of chat messages"), options)
    elif hasattr(prompt, "tolist"):
        ids = prompt.tolist()
    elif isinstance(prompt, Sequence):
        ids = list(prompt)
    else:
        raise UsageError(
            "a prompt is a string, a list of token ids or a list of chat messages, not "
            f"{type(prompt).__name__}"
        )
    return _checked(ids, vocab_size)


def chat_ids(
    messages: Sequence[Message], tokenizer: Any, options: TemplateOptions = NO_OPTIONS
) -> list[int]:
    """The ids of a chat, ready for the assistant's answer, or as `options` say."""
    return list(tokenizer.encode(render(messages, tokenizer, options), add_special_tokens=False))


def _needs(tokenizer: Any, what: str) -> Any:
    if tokenizer is None:
        raise UsageError(f"{what} needs a tokenizer; without one a prompt is a list of token ids")
    return tokenizer


def _checked(ids: Sequence[Any], vocab_size: int) -> tuple[int, ...]:
    if len(ids) == 0:
        raise UsageError("the prompt is empty; give at least one token")
    for position, token in enumerate(ids):
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise UsageError(
                f"token {position} of the prompt is {token!r}; token ids are whole numbers"
            )
        if not 0 <= int(token) < vocab_size:
            raise UsageError(
                f"token {position} of the prompt is {int(token)}; this model's ids go "
                f"from 0 to {vocab_size - 1}"
            )
    return tuple(int(token) for token in ids)
