"""Answers as clients get them, whole or in parts: one envelope for both endpoints, filled by the
endpoint's own writer."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from draftproof.decode.result import Update
from draftproof.serve.running import Running
from draftproof.serve.schemas import Sampled

Choice = dict[str, Any]


class Writer(Protocol):
    """One request's answer. prefix: of its id. whole, part: what OpenAI calls the two forms."""

    prefix: str
    whole: str
    part: str

    def opening(self) -> Iterator[Choice]:
        """Parts before anything is written."""

    def parts(self, number: int, update: Update) -> Iterator[Choice]:
        """What an update of prompt `number` adds to its choices."""

    def join(self, parts: list[Choice]) -> Choice:
        """The choice that its parts make together."""

    def about_prompt(self) -> dict[str, Any]:
        """What stands beside the choices, of the whole answer or of its first part."""


class Answer:
    """Its id, and its two forms."""

    def __init__(self, body: Sampled, writer: Writer, model: str) -> None:
        self.id = body.request_id or f"{writer.prefix}{secrets.token_hex(12)}"
        self._body, self._writer = body, writer
        self._head = {"created": int(time.time()), "model": model}

    async def whole(self, running: Running) -> dict[str, Any]:
        """Everything in one object."""
        found: dict[int, list[Choice]] = {}
        async for number, update in running.updates():
            for choice in self._writer.parts(number, update):
                found.setdefault(choice["index"], []).append(choice)
        choices = [self._writer.join(found[index]) for index in sorted(found)]
        head = {"id": self.id, "object": self._writer.whole} | self._head
        return (
            head
            | {"choices": choices, "usage": running.usage.as_dict()}
            | self._writer.about_prompt()
        )

    async def parts(self, running: Running) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a stream, the usage last where it was asked for."""
        options = self._body.stream_options
        counts, keeps_counting = (
            options is not None and options.include_usage,
            options is not None and options.continuous_usage_stats,
        )
        for choice in self._writer.opening():
            yield self._chunk([choice], counts, None)
        said = False
        async for number, update in running.updates():
            for choice in self._writer.parts(number, update):
                chunk = self._chunk(
                    [choice], counts, running.usage.as_dict() if keeps_counting else None
                )
                yield chunk if said else chunk | self._writer.about_prompt()
                said = True
        if counts:
            yield self._chunk([], counts, running.usage.as_dict())

    def _chunk(
        self, choices: list[Choice], counts: bool, usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        chunk = {"id": self.id, "object": self._writer.part} | self._head | {"choices": choices}
        return chunk | {"usage": usage} if counts or usage else chunk
