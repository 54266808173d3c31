"""Where a text parts from plain decoding's, and what the target says of it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftproof.core.history import common_prefix
from draftproof.core.params import SamplingParams
from draftproof.decode.decoder import Decoder
from draftproof.decode.logprobs import row_logprobs
from draftproof.decode.ties import Verdict, judge
from draftproof.models.protocol import Step, extend


@dataclass(frozen=True)
class FirstDifference:
    """position: index among the new tokens. plain_token, speculative_token: what stands there, None
    where one text has ended. top2_gap: the target's log-probability of its best token less that of
    its second best, from one pass over what is common. verdict, gap, noise, why: see
    `ties.py`."""

    position: int
    plain_token: int | None
    speculative_token: int | None
    top2_gap: float
    verdict: Verdict
    gap: float | None
    noise: float
    why: str


def first_difference(
    decoder: Decoder,
    prompt: Sequence[int],
    theirs: Sequence[int],
    ours: Sequence[int],
    params: SamplingParams,
) -> FirstDifference | None:
    """Where `ours` parts from plain decoding's tokens `theirs` after one prompt; None when they are
    the same."""
    if tuple(ours) == tuple(theirs):
        return None
    position = common_prefix(ours, theirs)
    plain, speculative = (
        text[position] if position < len(text) else None for text in (theirs, ours)
    )
    found = judge(decoder.target, prompt, ours[:position], plain, speculative, params)
    gap = top2_gap(decoder, (*prompt, *ours[:position]))
    return FirstDifference(
        position, plain, speculative, gap, found.verdict, found.gap, found.noise, found.why
    )


def top2_gap(decoder: Decoder, token_ids: Sequence[int]) -> float:
    """Difference in log-probability between the target's two best tokens after `token_ids`, before
    any processing."""
    session = decoder.target.open()
    try:
        output = extend(Step(session, tuple(token_ids), rows=(len(token_ids) - 1,)))
        (_, best), (_, second) = row_logprobs(output.logits[0], 0, 2).top
    finally:
        session.close()
    return best - second
