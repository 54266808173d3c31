"""/v1/chat/completions: messages, tools and all turned into a prompt, and the assistant's
answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from draftproof.decode.result import Update
from draftproof.serve.answers import Choice
from draftproof.serve.errors import refuse
from draftproof.serve.forced_calls import ANY_MODEL, call_grammar, is_forced
from draftproof.serve.messages import chat_prompt
from draftproof.serve.params import chat_tokens, check_logprobs
from draftproof.serve.rounds import RoundsShown, joined
from draftproof.serve.schemas import ChatBody, Tool
from draftproof.serve.service import Prompt, Service
from draftproof.serve.tools import PARSERS, Call, ToolParser


@dataclass(frozen=True)
class Checked:
    """What a body asks for. parser: finds calls in the answer; None where there are no tools to
    call."""

    body: ChatBody
    prompt: Prompt
    parser: str | None


def check(body: ChatBody, service: Service) -> Checked:
    """ApiError for whatever cannot be honoured."""
    logprobs = check_logprobs(body, service.settings.max_logprobs)
    service.check_count(1 if body.n is None else body.n, 1)
    tools = _tools(body)
    if body.add_special_tokens:
        refuse(
            "add_special_tokens",
            "a chat's special tokens are its template's: leave add_special_tokens out",
        )
    ids = chat_prompt(body, tools, service.tokenizer)
    parser = _parser(body, tools, service)  # after the template has shown that it takes tools
    prompt = service.prompt(
        ids,
        "messages",
        body,
        chat_tokens(body),
        logprobs=logprobs,
        prompt_logprobs=body.prompt_logprobs,
        bound=call_grammar(body, parser) if parser is not None and is_forced(body) else None,
    )
    return Checked(body, prompt, parser)


def _parser(body: ChatBody, tools: list[Tool] | None, service: Service) -> str | None:
    """What finds calls in the answer; None without tools. A call that is forced is written in some
    way that is known."""
    if not tools:
        return None
    if service.tool_call_parser is None and not is_forced(body):
        refuse(
            "tools",
            (
                "nothing here knows how this model writes calls: start the server with "
                "--tool-call-parser, or force a call with tool_choice"
            ),
        )
    return service.tool_call_parser or ANY_MODEL


def _tools(body: ChatBody) -> list[Tool] | None:
    """The tools the model may call; none with tool_choice "none", as nothing else would keep it
    from calling them."""
    choice = body.tool_choice
    if body.tools is not None and not body.tools:
        refuse("tools", "tools is an empty list; leave it out, or give at least one")
    if choice == "none":
        return None
    if body.tools is None and choice is not None:
        refuse("tool_choice", "tool_choice is about tools, and there are none")
    if body.parallel_tool_calls is False and not is_forced(body):
        refuse(
            "parallel_tool_calls",
            "nothing keeps the model from several calls unless tool_choice forces one",
        )
    return body.tools


class ChatWriter:
    """The choices of one chat."""

    prefix, whole, part = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def __init__(self, asked: Checked, service: Service) -> None:
        self._asked, self._body, self._tokens = asked, asked.body, service.tokens
        self._parsers: dict[int, ToolParser] = {}
        self._num_calls: dict[int, int] = {}
        self._rounds = RoundsShown(service.tokenizer, asked.body.return_rounds)
        self._about: dict[str, Any] = (
            {"prompt_token_ids": list(asked.prompt.ids)} if asked.body.return_token_ids else {}
        )

    def opening(self) -> Iterator[Choice]:
        for index in range(self._asked.prompt.params.n):
            yield {
                "index": index,
                "delta": {"role": "assistant", "content": ""},
                "logprobs": None,
                "finish_reason": None,
            }

    def parts(self, number: int, update: Update) -> Iterator[Choice]:
        if update.prompt_logprobs is not None and self._body.prompt_logprobs is not None:
            self._about["prompt_logprobs"] = self._tokens.prompt_logprobs(
                update.prompt_logprobs, self._body.prompt_logprobs
            )
        done = update.completion
        reason: str | None = None if done is None else done.finish_reason
        delta = self._delta(update.index, update.text, done is not None)
        if reason == "stop" and self._num_calls.get(update.index):
            reason = "tool_calls"
        choice: Choice = {
            "index": update.index,
            "delta": delta,
            "logprobs": None,
            "finish_reason": reason,
        }
        choice["stop_reason"] = None if done is None else done.stop_reason
        if update.logprobs is not None:
            choice["logprobs"] = self._tokens.chat_logprobs(update.logprobs)
        if self._body.return_token_ids:
            choice["token_ids"] = list(update.token_ids)
        num_prompt = len(self._asked.prompt.ids)
        yield choice | self._rounds.of(update.index, update, num_prompt)

    def join(self, parts: list[Choice]) -> Choice:
        deltas = [part["delta"] for part in parts]
        content = "".join(delta.get("content", "") for delta in deltas)
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content or None if calls else content,
            "refusal": None,
        }
        if calls:
            message["tool_calls"] = [
                {key: value for key, value in call.items() if key != "index"} for call in calls
            ]
        whole = {"index": parts[-1]["index"], "message": message} | {
            k: v for k, v in parts[-1].items() if k != "delta"
        }
        whole |= joined(parts)
        if self._body.return_token_ids:
            whole["token_ids"] = [token for part in parts for token in part["token_ids"]]
        scored = [
            entry for part in parts if part["logprobs"] for entry in part["logprobs"]["content"]
        ]
        whole["logprobs"] = {"content": scored, "refusal": None} if self._body.logprobs else None
        return whole

    def about_prompt(self) -> dict[str, Any]:
        return self._about

    def _delta(self, index: int, text: str, ended: bool) -> dict[str, Any]:
        """Text, and calls found in it."""
        if self._asked.parser is None:
            return {"content": text}
        parser = self._parsers.setdefault(index, PARSERS[self._asked.parser]())
        found = [*parser.feed(text), *(parser.close() if ended else ())]
        delta: dict[str, Any] = {}
        content = "".join(one for one in found if isinstance(one, str))
        if content:
            delta["content"] = content
        calls = [one for one in found if isinstance(one, Call)]
        if calls:
            before = self._num_calls.get(index, 0)
            self._num_calls[index] = before + len(calls)
            delta["tool_calls"] = [
                {"index": place} | call.as_dict() for place, call in enumerate(calls, before)
            ]
        return delta
