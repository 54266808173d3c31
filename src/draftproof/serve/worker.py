"""The one thread that runs the models: takes requests in between rounds, and what else must not run
beside a pass."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from draftproof.serve.errors import ApiError
from draftproof.serve.scheduler import Scheduler, Work

LOG = logging.getLogger("draftproof.serve")

Returned = TypeVar("Returned")


class Worker:
    """most: texts that may run and wait together; a request that comes beyond is refused."""

    def __init__(self, scheduler: Scheduler, most: int) -> None:
        self.scheduler, self._most = scheduler, most
        self._changed = threading.Condition()
        self._inbox: list[Work] = []
        self._jobs: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="draftproof-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def num_waiting(self) -> int:
        """Texts that have not begun."""
        return sum(work.request.params.n for work in list(self._inbox)) + self.scheduler.num_waiting

    def submit(self, works: Sequence[Work]) -> None:
        """All prompts of one request, or an ApiError: 429 when the queue is full, 503 when no more
        is taken."""
        with self._changed:
            if self._stopping or not self.is_alive:
                raise ApiError("the server is going down", status=503)
            if self.num_waiting + self.scheduler.num_running >= self._most:
                raise ApiError("the queue is full; come again", status=429, code="queue_full")
            self._inbox.extend(works)
            self._changed.notify()

    def call(self, job: Callable[[], Returned]) -> Future[Returned]:
        """Run `job` between two rounds."""
        done: Future[Returned] = Future()
        with self._changed:
            self._jobs.append((done, job))
            self._changed.notify()
        return done

    def stop(self) -> None:
        """Take no more, finish what was taken, free everything."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self.is_alive:
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._take():
                if self.scheduler.has_unfinished():
                    self._step()
        finally:
            self.scheduler.close()

    def _take(self) -> bool:
        """Wait for something to do, and take it in; False when the end has come."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._jobs or self._inbox or self._stopping or self.scheduler.has_unfinished()
                )
            )
            jobs, self._jobs = self._jobs, []
            for work in self._inbox:
                self.scheduler.add(work)
            self._inbox = []
            goes_on = bool(jobs) or self.scheduler.has_unfinished() or not self._stopping
        for done, job in jobs:
            try:
                done.set_result(job())
            except Exception as error:
                done.set_exception(error)
        return goes_on

    def _step(self) -> None:
        try:
            self.scheduler.step()
        except Exception:
            LOG.exception("a round failed")
