"""Log-probabilities of a prompt: it is read in pieces, so that no more than a few hundred rows of
logits exist at once, and other sequences may have their rounds in between."""

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
    scored: list[TokenLogprobs | None],
    *,
    count: int | None = None,
    hidden: Sequence[int] = (),
    observe: Callable[[Observation], None] | None = None,
) -> Generator[Step, Output, None]:
    """Read the next `count` tokens of `prompt`, or all, up to its last token into `session`, and
    add an entry for each to `scored`, which is empty before the first: that one's is None.

    A drafter that watches the target is told through `observe`."""
    if not scored:
        session.rollback(0)
        scored.append(None)
    last = len(prompt) - 1
    end = last if count is None else min(session.length + count, last)
    for begin in range(session.length, end, _CHUNK):
        piece = prompt[begin : min(begin + _CHUNK, end)]
        output = yield Step(session, piece, hidden=hidden)
        for i in range(len(piece)):
            scored.append(row_logprobs(output.logits[i], prompt[begin + i + 1], num_top))
        if observe is not None:
            observe(Observation(start=begin, tokens=piece, hidden=output.hidden))
