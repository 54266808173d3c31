"""Messages of a chat as the model's template takes them; what it would leave out is refused, naming
the message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftproof.decode.prompts import chat_ids
from draftproof.decode.template import TemplateOptions, render
from draftproof.errors import UsageError
from draftproof.serve.errors import of_usage, refuse
from draftproof.serve.schemas import ChatBody, Message, TokenizeBody, Tool


def chat_prompt(
    body: ChatBody | TokenizeBody, tools: Sequence[Tool] | None, tokenizer: Any
) -> list[int]:
    """The ids of a chat with its tools. ApiError for what the template cannot show."""
    assert body.messages is not None
    kwargs = dict(body.chat_template_kwargs or {})
    if isinstance(body, ChatBody) and body.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", body.reasoning_effort)
    said = {
        "tools": [tool.model_dump(exclude_none=True) for tool in tools] if tools else None,
        "chat_template_kwargs": kwargs or None,
        "add_generation_prompt": body.add_generation_prompt,
        "continue_final_message": bool(body.continue_final_message),
    }
    messages = [_as_dict(message) for message in body.messages]
    try:
        options = TemplateOptions.of(said)
        _check_names(messages, tokenizer, options)
        return chat_ids(messages, tokenizer, options)
    except UsageError as error:
        raise of_usage(error, _field(str(error), said)) from error


def _as_dict(message: Message) -> dict[str, Any]:
    """`developer` is what `system` is to models that are not OpenAI's; parts of text are joined by
    line ends, as in vLLM."""
    given = message.model_dump(exclude_unset=True)
    said = {key: value for key, value in given.items() if value is not None or key == "content"}
    if message.role == "developer":
        said["role"] = "system"
    if isinstance(message.content, list):
        said["content"] = "\n".join(part.text for part in message.content)
    return said


def _check_names(
    messages: Sequence[dict[str, Any]], tokenizer: Any, options: TemplateOptions
) -> None:
    """A `name` that changes nothing in the text was left out by the template. Of a tool's answer it
    only repeats the call."""
    named = [
        number
        for number, message in enumerate(messages)
        if "name" in message and message["role"] != "tool"
    ]
    if not named:
        return
    unnamed = [
        {key: value for key, value in message.items() if key != "name"} for message in messages
    ]
    if render(messages, tokenizer, options) == render(unnamed, tokenizer, options):
        refuse(
            f"messages.{named[0]}.name", "the model's chat template shows no names: leave them out"
        )


def _field(complaint: str, said: dict[str, Any]) -> str:
    """Which field a complaint is about: one of the options, when it names one, or the messages."""
    if "reasoning_effort" in complaint:
        return "reasoning_effort"
    return next(
        (name for name in ("chat_template_kwargs", "tools") if said[name] and name in complaint),
        "messages",
    )
