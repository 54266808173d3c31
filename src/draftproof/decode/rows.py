"""Rows of a batch: each opened when there is room, each leaving as it ends, its place taken by the next.

Rows of one prompt (n > 1) read it once: the first one's session is copied, where the model's sessions can be.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from draftproof.decode.batch import Batch
from draftproof.decode.failures import is_memory_error
from draftproof.decode.samples import Sample
from draftproof.decode.schedule import BatchSchedule
from draftproof.models.protocol import LanguageModel, Session


@dataclass(frozen=True)
class Row:
    """A sequence to be generated. prompt: its ids. open: its sample, given a target session that has read none of them or all
    but the last. reads_all: it wants one that has read none."""

    prompt: tuple[int, ...]
    open: Callable[[Session], Sample]
    reads_all: bool = False


def run_rows(
    target: LanguageModel, rows: Sequence[Row], batch_size: int, draft_length: BatchSchedule | None = None
) -> Iterator[tuple[int, Sample]]:
    """Run `rows`, at most `batch_size` at a time; each number and ended sample as it ends. Closing the iterator, or an error
    that is no row's own, frees everything. A row that failed has its `error`."""
    sessions = _Sessions(target, rows)
    batch, numbers, waiting = Batch(draft_length), {}, deque(range(len(rows)))
    try:
        while waiting or batch.samples:
            while waiting and len(batch.samples) < batch_size:
                number = waiting[0]
                session = sessions.open(number)
                if session is None:
                    break
                waiting.popleft()
                sample = rows[number].open(session)
                numbers[id(sample)] = number
                batch.samples.append(sample)
            for sample in batch.round():
                sessions.leave(numbers[id(sample)])
                yield numbers.pop(id(sample)), sample
    finally:
        batch.close()
        sessions.close()


class _Sessions:
    """The target sessions of all rows that run, and of prompts already read that further rows wait for."""

    def __init__(self, target: LanguageModel, rows: Sequence[Row]) -> None:
        self._target, self._rows = target, rows
        self._due = Counter(row.prompt for row in rows if not row.reads_all)
        self._open: dict[int, Session] = {}
        self._readers: dict[tuple[int, ...], int] = {}
        self._kept: set[int] = set()

    def open(self, number: int) -> Session | None:
        """A session for a row, or None while another row is still reading the same prompt for it."""
        if self._rows[number].reads_all:
            self._open[number] = self._target.open()
            return self._open[number]
        prompt = self._rows[number].prompt
        reader = self._readers.get(prompt)
        if reader is None:
            session = self._target.open()
            if self._due[prompt] > 1 and session.can_fork:
                self._readers[prompt] = number
        else:
            source = self._open[reader]
            if source.length < len(prompt):
                return None
            session = self._fork(source, len(prompt) - 1)
        self._due[prompt] -= 1
        if self._due[prompt] == 0:
            self._forget(prompt)
        self._open[number] = session
        return session

    def _fork(self, source: Session, length: int) -> Session:
        """A copy of a session, or an empty one where there is no memory for both at once."""
        try:
            return source.fork(length)
        except Exception as error:
            if not is_memory_error(error):
                raise
            return self._target.open()

    def leave(self, number: int) -> None:
        """A row has ended: its session goes, unless others wait for the prompt it has read."""
        prompt = self._rows[number].prompt
        if self._readers.get(prompt) != number:
            self._open.pop(number).close()
        elif self._open[number].length < len(prompt):
            del self._readers[prompt]
            self._open.pop(number).close()
        else:
            self._kept.add(number)

    def close(self) -> None:
        for session in self._open.values():
            session.close()
        self._open.clear()

    def _forget(self, prompt: tuple[int, ...]) -> None:
        """No further row wants this prompt."""
        reader = self._readers.pop(prompt, None)
        if reader is not None and reader in self._kept:
            self._open.pop(reader).close()
