"""Chats as text, by the model's own template: what is given is rendered whole, or refused in one
sentence.

A template leaves out what it does not know without a word: tools, tool calls, a variable, a role.
So it is looked at, or asked again without the message in question, before its text is believed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from draftproof.core.checks import refuse
from draftproof.errors import UsageError

Message = Mapping[str, Any]


class TemplateKeys(TypedDict, total=False):
    """The fields of `TemplateOptions` as keyword arguments."""

    tools: Sequence[Any] | None
    chat_template_kwargs: Mapping[str, Any] | None
    add_generation_prompt: bool | None
    continue_final_message: bool


@dataclass(frozen=True)
class TemplateOptions:
    """vLLM's names. tools: functions the model may call, as JSON schemas or Python functions.
    chat_template_kwargs: the template's own variables, such as enable_thinking.
    continue_final_message: the model goes on with the last message instead of answering it.
    add_generation_prompt: open a turn of the assistant; None: unless a message is continued."""

    tools: Sequence[Any] | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    def __post_init__(self) -> None:
        kwargs, opens = self.chat_template_kwargs, self.add_generation_prompt
        if self.tools is not None and not (isinstance(self.tools, (list, tuple)) and self.tools):
            refuse("tools", self.tools, "a non-empty list of JSON schemas or Python functions")
        if kwargs is not None and not isinstance(kwargs, Mapping):
            refuse(
                "chat_template_kwargs", kwargs, "a mapping from the template's variables to values"
            )
        if not isinstance(self.continue_final_message, bool):
            refuse("continue_final_message", self.continue_final_message, "true or false")
        if opens is not None and not isinstance(opens, bool):
            refuse("add_generation_prompt", opens, "true or false")
        if opens and self.continue_final_message:
            raise UsageError(
                "add_generation_prompt opens a new turn and continue_final_message goes "
                "on with the last: choose one"
            )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TemplateOptions:
        """From names to values; UsageError for a name that is none of the fields."""
        unknown = [name for name in given if name not in OPTION_NAMES]
        if unknown:
            raise UsageError(
                f"{unknown[0]!r} is no option of a chat; allowed: {', '.join(OPTION_NAMES)}"
            )
        return cls(**given)

    @property
    def given(self) -> list[str]:
        """The names of those that say something."""
        return [name for name in OPTION_NAMES if getattr(self, name) != getattr(NO_OPTIONS, name)]


OPTION_NAMES = tuple(spec.name for spec in fields(TemplateOptions))
NO_OPTIONS = TemplateOptions()


def render(
    messages: Sequence[Message], tokenizer: Any, options: TemplateOptions = NO_OPTIONS
) -> str:
    """The text of a chat, ready for the assistant's answer, or as `options` say.

    UsageError: no template, a message without a role or anything said, something the template would
    leave out, or whatever the template itself refuses."""
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError("this tokenizer has no chat template; give the prompt as a string")
    check_messages(messages)
    template = _Template(tokenizer, options)
    template.check(messages)
    chat = [_with_parsed_arguments(message) for message in messages]
    text = _text(template, chat)
    for number, message in enumerate(chat):
        if (
            message["role"] not in ("user", "assistant")
            and message.get("content")
            and template.leaves_out(number, chat, text)
        ):
            raise UsageError(
                f"the model's chat template leaves message {number} out: it knows no "
                f"role {message['role']!r}"
            )
    return text


def _text(template: _Template, chat: Sequence[Message]) -> str:
    """The rendered chat. Nothing said (content null or absent, beside tool calls) is shown as the
    template shows it; where that would be the word None, or an error, as an empty text."""
    emptied = [
        {**message, "content": ""} if message.get("content") is None else message
        for message in chat
    ]
    if emptied == list(chat):
        return template(chat)
    empty = template(emptied)
    try:
        given = template(chat)
    except UsageError:
        return empty
    return empty if given.count("None") > empty.count("None") else given


class _Template:
    """One tokenizer's template under `options`; calling it gives a chat's text."""

    def __init__(self, tokenizer: Any, options: TemplateOptions) -> None:
        self._tokenizer, self._options = tokenizer, options
        opens = options.add_generation_prompt
        self._settings: dict[str, Any] = {
            "tools": None if options.tools is None else list(options.tools),
            "add_generation_prompt": not options.continue_final_message if opens is None else opens,
            "continue_final_message": options.continue_final_message,
            **(options.chat_template_kwargs or {}),
        }
        source = tokenizer.get_chat_template(tools=self._settings["tools"])
        self._code = "\n".join(re.findall(r"\{[{%].*?[%}]\}", source, re.DOTALL))
        self._names = set(
            re.findall(r"(?<![\w.])[A-Za-z_]\w*", re.sub(r"'[^']*'|\"[^\"]*\"", "", self._code))
        )

    def check(self, messages: Sequence[Message]) -> None:
        """UsageError for what the template does not read."""
        kwargs = self._options.chat_template_kwargs or {}
        taken = [name for name in kwargs if name in (*OPTION_NAMES, "messages")]
        if taken:
            raise UsageError(
                f"chat_template_kwargs has {taken[0]!r}, which is an argument of its own"
            )
        unread = [name for name in kwargs if name not in self._names]
        if unread:
            raise UsageError(
                f"the model's chat template reads no variable {unread[0]!r}: leave it "
                "out of chat_template_kwargs"
            )
        if self._options.tools is not None and "tools" not in self._names:
            raise UsageError("the model's chat template takes no tools: leave them out")
        for number, message in enumerate(messages):
            if message.get("tool_calls") and "tool_calls" not in self._code:
                raise UsageError(
                    f"the model's chat template reads no tool_calls, and message {number} has some"
                )

    def __call__(self, chat: Sequence[Message]) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                list(chat), tokenize=False, **self._settings
            )
        except (
            Exception
        ) as error:  # a template is a program of the model's, and raises what it likes
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise UsageError(f"the model's chat template refuses this chat: {said[0]}") from error
        return text

    def leaves_out(self, number: int, chat: Sequence[Message], text: str) -> bool:
        """Whether `text` is also that of the chat without this message."""
        try:
            return self([*chat[:number], *chat[number + 1 :]]) == text
        except UsageError:
            return False


def check_messages(messages: Any) -> None:
    """UsageError for anything but a list of messages, each of which has a role and says something;
    the assistant may say it by other keys than `content`, as `tool_calls`."""
    if (
        not isinstance(messages, (list, tuple))
        or not messages
        or not all(isinstance(each, Mapping) for each in messages)
    ):
        raise UsageError(
            "'messages' is a non-empty list of objects with the keys 'role' and 'content'"
        )
    for number, message in enumerate(messages):
        said = {key for key, value in message.items() if value is not None}
        silent = said <= {"role"} if message.get("role") == "assistant" else "content" not in said
        if "role" not in said or silent:
            raise UsageError(
                f"chat message {number} needs the keys 'role' and 'content' (or, of the "
                "assistant, 'tool_calls'); "
                f"what it says: {', '.join(sorted(said)) or 'nothing'}"
            )


def _with_parsed_arguments(message: Message) -> Message:
    """The OpenAI API writes the arguments of a call as a string of JSON; templates expect what it
    says, as in vLLM."""
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [_parsed(call) for call in message["tool_calls"]]}


def _parsed(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}
