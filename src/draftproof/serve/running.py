"""A request at work: its prompts handed to the worker, what comes of them handed on, its end in
whatever way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from draftproof.decode.result import Completion, Update
from draftproof.serve.errors import ApiError
from draftproof.serve.scheduler import Work
from draftproof.serve.service import Prompt, Service
from draftproof.serve.usage import Usage


class Running:
    """Prompts at work. Ends when all their texts have, or their time is over; closing it cancels
    what is left.

    usage, completions: of what has come so far."""

    def __init__(self, service: Service, prompts: Sequence[Prompt]) -> None:
        self._cancel, self._left = threading.Event(), sum(prompt.params.n for prompt in prompts)
        self._arrived: asyncio.Queue[tuple[int, Update] | None] = asyncio.Queue()
        self._loop, seconds = asyncio.get_running_loop(), service.settings.request_timeout
        self._deadline = (
            None
            if seconds is None
            else self._loop.call_later(seconds, self._arrived.put_nowait, None)
        )
        self.works = [
            Work(each.decoder, each.request, partial(self._deliver, number), self._cancel)
            for number, each in enumerate(prompts)
        ]
        self.usage, self.completions = Usage(), list[Completion]()
        self.usage.prompt = sum(len(prompt.ids) for prompt in prompts)
        service.worker.submit(self.works)

    async def updates(self) -> AsyncIterator[tuple[int, Update]]:
        """The number of the prompt and what came of it. ApiError when a text failed or time was
        over."""
        try:
            while self._left:
                arrived = await self._arrived.get()
                if arrived is None:
                    raise ApiError(
                        "the request took longer than this server allows",
                        status=504,
                        code="timeout",
                    )
                number, update = arrived
                if update.failure is not None:
                    raise ApiError(update.failure, status=500)
                self._note(update)
                yield number, update
        finally:
            self.close()

    def _note(self, update: Update) -> None:
        self.usage.completion += len(update.token_ids)
        done = update.completion
        if done is None:
            return
        self._left -= 1
        self.completions.append(done)
        self.usage.end(done)

    def close(self) -> None:
        """Let what still runs end before its next round."""
        self._cancel.set()
        if self._deadline is not None:
            self._deadline.cancel()

    def _deliver(self, number: int, update: Update) -> None:
        """Called by the worker's thread."""
        if not self._cancel.is_set():
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, (number, update))

    def log_fields(self) -> dict[str, Any]:
        """What the log says of how the texts were made."""
        stats = [done.stats for done in self.completions]
        return {
            "method": next((one.method for one in stats), None),
            "finish_reasons": sorted({done.finish_reason for done in self.completions}),
            "rounds": sum(one.num_rounds for one in stats),
            "draft_tokens": sum(one.num_draft_tokens for one in stats),
            "accepted_tokens": sum(one.num_accepted_tokens for one in stats),
            "queue_seconds": max(
                (work.begun - work.queued for work in self.works if work.begun), default=None
            ),
            "first_token_seconds": max(
                (work.first - work.queued for work in self.works if work.first), default=None
            ),
            **{
                name: value
                for name, value in self.usage.as_dict().items()
                if isinstance(value, int)
            },
        }
