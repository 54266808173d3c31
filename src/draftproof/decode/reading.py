"""Prompts read ahead, a piece a round, so that a long one does not keep the sequences beside it
waiting."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from draftproof.core.records import Observation
from draftproof.drafters.protocol import DraftSession, Wants
from draftproof.models.protocol import Output, Session, Step


class Reading(Protocol):
    """What reading ahead needs of a sequence. ahead: what the drafter has not been told of it yet:
    it hears of the whole prompt after the first round, as it would had that round read it, so that
    its drafts and the text do not depend on the pieces."""

    session: Session
    context: list[int]
    ahead: list[Observation]

    @property
    def drafting(self) -> DraftSession | None: ...

    @property
    def wants(self) -> Wants: ...


def read_ahead(sequence: Reading, count: int) -> Generator[Step, Output, None]:
    """Read the next `count` tokens of the context, of which one must be left for the round that
    goes on from it."""
    start = sequence.session.length
    tokens: Sequence[int] = tuple(sequence.context[start : start + count])
    output = yield Step(sequence.session, tokens, rows=(), hidden=sequence.wants.hidden)
    if sequence.drafting is not None:
        sequence.ahead.append(Observation(start=start, tokens=tokens, hidden=output.hidden))
