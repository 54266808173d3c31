"""Answers that come in parts, as server-sent events; and the end of work for clients that have
gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from draftproof.serve.errors import ApiError

Returned = TypeVar("Returned")


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


async def unless_gone(receive: Receive, work: Awaitable[Returned]) -> Returned:
    """What `work` gives; ClientGone, and `work` cancelled, when the client goes away before, or
    `work` gives it up."""
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done() or working.cancelled():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def event(value: dict[str, Any] | str) -> bytes:
    """One event; JSON in one line."""
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
    return f"data: {text}\n\n".encode()


class EventStream(Response):
    """events: the parts. finish: called once, when the stream has ended in whatever way. seconds: a
    client may take to read the next part; one that is slower is cut off."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[dict[str, Any]], finish: Callable[[str], None], seconds: float
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._finish, self._seconds = events, finish, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        how = "failed"
        try:
            await unless_gone(receive, self._send_all(send))
            how = "done"
        except (ClientGone, OSError):
            how = "client gone"
        finally:
            self._finish(how)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for value in self._events:
                await self._part(send, event(value))
        except ApiError as error:
            await self._part(send, event(error.body()))
        await self._part(send, event("[DONE]"), more=False)

    async def _part(self, send: Send, data: bytes, more: bool = True) -> None:
        """Not by `asyncio.wait_for`, which before Python 3.12 may swallow the cancellation of what
        it waits in."""
        task = asyncio.current_task()
        assert task is not None
        overdue = asyncio.get_running_loop().call_later(self._seconds, task.cancel)
        try:
            await send({"type": "http.response.body", "body": data, "more_body": more})
        finally:
            overdue.cancel()
