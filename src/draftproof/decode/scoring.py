"""Log-probabilities of a prompt: it is read in pieces, so that no more than a few hundred rows of
logits exist at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from draftproof.core.records import Observation
from draftproof.decode.logprobs import TokenLogprobs, row_logprobs
from draftproof.models.protocol import Output, Session, Step

_CHUNK = 256


def score_prompt(
    session: Session,
    prompt: Sequence[int],
    num_top: int,
    *,
    hidden: Sequence[int] = (),
    observe: Callable[[Observation], None] | None = None,
) -> Generator[Step, Output, list[TokenLogprobs | None]]:
    """Read `prompt` up to its last token into the empty `session`; one entry a prompt token, None
    for the first.

    A drafter that watches the target is told through `observe`."""
    scored: list[TokenLogprobs | None] = [None]
    session.rollback(0)
    for begin in range(0, len(prompt) - 1, _CHUNK):
        piece = prompt[begin : min(begin + _CHUNK, len(prompt) - 1)]
        output = yield Step(session, piece, hidden=hidden)
        for i in range(len(piece)):
            scored.append(row_logprobs(output.logits[i], prompt[begin + i + 1], num_top))
        if observe is not None:
            observe(Observation(start=begin, tokens=piece, hidden=output.hidden))
    return scored
