"""Prompts read ahead, a piece a round, so that a long one does not keep the sequences beside it waiting."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from draftproof.core.records import Observation
from draftproof.drafters.protocol import DraftSession, Wants
from draftproof.models.protocol import Output, Session, Step


class Reading(Protocol):
    """What reading ahead needs of a sequence; `drafting` is told what was read, and may want hidden states of it."""

    session: Session
    context: list[int]

    @property
    def drafting(self) -> DraftSession | None: ...

    @property
    def wants(self) -> Wants: ...


def read_ahead(sequence: Reading, count: int) -> Generator[Step, Output, None]:
    """Read the next `count` tokens of the context, of which one must be left for the round that goes on from it."""
    start = sequence.session.length
    tokens: Sequence[int] = tuple(sequence.context[start : start + count])
    output = yield Step(sequence.session, tokens, rows=(), hidden=sequence.wants.hidden)
    if sequence.drafting is not None:
        sequence.drafting.observe(Observation(start=start, tokens=tokens, hidden=output.hidden))
