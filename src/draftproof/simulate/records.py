"""Acceptance processes from the outside: a recorded run, or a short description on the command
line."""

from __future__ import annotations

from pathlib import Path

from draftproof.decode.record import read_rounds
from draftproof.errors import UsageError
from draftproof.simulate.acceptance import (
    AcceptanceProcess,
    MarkovAcceptance,
    PositionAcceptance,
    ReplayAcceptance,
)

UNLIMITED = 10**6


def read_replay(path: Path | str) -> ReplayAcceptance:
    """The rounds of a recorded run (`decode/record.py`) as an acceptance process.

    Rounds that a stop or the length limit cut are left out: how many of their drafts would have
    been kept is not recorded. Trees are refused, because a tree has no length to cut."""
    _, rounds = read_rounds(path)
    if any(tuple(r.draft_parents) != tuple(range(-1, len(r.draft_tokens) - 1)) for r in rounds):
        raise UsageError(f"{path} records drafts that branch; only chains can be replayed")
    whole = [r for r in rounds if len(r.tokens) == r.num_accepted_tokens + 1]
    if whole and not any(r.draft_tokens for r in whole):
        raise UsageError(f"{path} records no drafts, so there is no acceptance to replay")
    return ReplayAcceptance(tuple((len(r.draft_tokens), r.num_accepted_tokens) for r in whole))


def parse_acceptance(text: str) -> tuple[AcceptanceProcess, int]:
    """`position:0.9,0.7`, `markov:EASY,HARD,STAY` or `replay:FILE` -> the process and the longest
    draft it can tell about."""
    kind, _, rest = text.partition(":")
    if kind == "replay" and rest:
        replay = read_replay(rest)
        return replay, replay.longest
    try:
        numbers = tuple(float(part) for part in rest.split(","))
    except ValueError:
        numbers = ()
    if kind == "position" and numbers:
        return PositionAcceptance(numbers), len(numbers)
    if kind == "markov" and len(numbers) == 3:
        return MarkovAcceptance.easy_and_hard(*numbers), UNLIMITED
    raise UsageError(
        f"acceptance is position:0.9,0.7 or markov:EASY,HARD,STAY or replay:FILE, got {text!r}"
    )
