"""Prompts read ahead, a piece a round, so that a long one does not keep the sequences beside it
waiting."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from draftproof.core.params import SamplingParams
from draftproof.core.records import Observation
from draftproof.decode.logprobs import TokenLogprobs
from draftproof.decode.scoring import score_prompt
from draftproof.drafters.protocol import DraftSession, Wants
from draftproof.models.protocol import Output, Session, Step


class Reading(Protocol):
    """What reading ahead needs of a sequence. ahead: what the drafter has not been told of it yet:
    it hears of the whole prompt after the first round, as it would had that round read it, so that
    its drafts and the text do not depend on the pieces."""

    session: Session
    context: list[int]
    params: SamplingParams
    prompt_logprobs: list[TokenLogprobs | None]
    ahead: list[Observation]

    @property
    def drafting(self) -> DraftSession | None: ...

    @property
    def wants(self) -> Wants: ...


def read_ahead(sequence: Reading, count: int) -> Generator[Step, Output, None]:
    """Read the next `count` tokens of the context, of which one must be left for the round that
    goes on from it."""
    if is_to_be_scored(sequence):
        yield from read_scored(sequence, count)
        return
    start = sequence.session.length
    tokens: Sequence[int] = tuple(sequence.context[start : start + count])
    output = yield Step(sequence.session, tokens, rows=(), hidden=sequence.wants.hidden)
    if sequence.drafting is not None:
        sequence.ahead.append(Observation(start=start, tokens=tokens, hidden=output.hidden))


def is_to_be_scored(sequence: Reading) -> bool:
    """Whether log-probabilities of the prompt are wanted that are not there yet: while it is read
    for them, there is one for every token read and one more."""
    if sequence.params.prompt_logprobs is None:
        return False
    num_scored = len(sequence.prompt_logprobs)
    return not num_scored or num_scored == sequence.session.length + 1 < len(sequence.context)


def read_scored(sequence: Reading, count: int | None = None) -> Generator[Step, Output, None]:
    """Read `count` more tokens of the prompt, or all but its last, with their log-probabilities.
    The drafter hears of them at once, as the first round comes after the whole prompt either
    way."""
    wanted = sequence.params.prompt_logprobs
    assert wanted is not None
    yield from score_prompt(
        sequence.session,
        tuple(sequence.context),
        wanted,
        sequence.prompt_logprobs,
        count=count,
        hidden=sequence.wants.hidden,
        observe=None if sequence.drafting is None else sequence.drafting.observe,
    )
