"""What a fork of a drafter's session must keep to, asked of one drafter over a target of eight
tokens or more."""

from __future__ import annotations

from functools import partial
from typing import Any

from draftproof import SamplingParams, TableModel
from draftproof.audit.exact import Case, begun, fork, laws_of
from draftproof.audit.kinds import Kind
from draftproof.core.chance import KeyedChance
from draftproof.core.pipeline import LawPipeline
from draftproof.decode.generation import Generation, Proposed
from draftproof.decode.passes import drive
from draftproof.drafters.protocol import Drafter

STREAMS = (1, 2)


def check_forks(drafter: Drafter, target: TableModel) -> None:
    """Branches of one session, told different tokens in turns, draft what fresh sessions draft that
    were told the same."""
    alone = {}
    for stream in STREAMS:
        fresh = _grown(drafter, target)
        alone[stream] = _lived(fresh, stream, 5)
    assert alone[1] != alone[2]
    stem = _grown(drafter, target)
    branches = {stream: fork(stem) for stream in STREAMS}
    told: dict[int, list[Any]] = {stream: [] for stream in STREAMS}
    for _ in range(5):
        for stream, branch in branches.items():
            told[stream] += _lived(branch, stream, 1)
    assert told == alone
    branches[1].close()
    assert _lived(stem, 2, 5) == alone[2], "the session that was forked has changed"


def check_forks_of_a_draft(drafter: Drafter, target: TableModel) -> None:
    """The same between a draft and its verdict, where the enumerator forks: one draft, verified
    with different coins."""
    alone = {stream: _verified(*_drafted(drafter, target), stream) for stream in STREAMS}
    stem, proposed = _drafted(drafter, target)
    branches = {stream: fork(stem) for stream in STREAMS}
    assert {
        stream: _verified(branch, proposed, stream) for stream, branch in branches.items()
    } == alone
    assert _verified(stem, proposed, 1) == alone[1], "the session that was forked has changed"


def _grown(drafter: Drafter, target: TableModel) -> Generation:
    """A text of three rounds, under a rule that takes whatever is drafted."""
    sampling = SamplingParams(max_tokens=60)
    laws, drafts = (LawPipeline(sampling, **laws_of(target)) for _ in range(2))
    case = Case("match", drafter.name, target.name, "plain", sampling, num_speculative_tokens=4)
    generation = begun(
        case, target, Kind(drafter.name, drafter, lambda *given: None), laws, drafts, max_nodes=14
    )
    _lived(generation, 0, 3)
    return generation


def _lived(generation: Generation, stream: int, count: int) -> list[Any]:
    """What `count` further rounds draft and emit with the coins of `stream`, and the drafter's
    state after each."""
    assert generation.drafting is not None
    generation.chance_at = partial(KeyedChance, (stream, 0))
    found = []
    for _ in range(count):
        record = drive(generation.round())
        found.append(
            (
                record.draft_tokens,
                record.draft_parents,
                record.tokens,
                generation.drafting.state_key(),
            )
        )
    return found


def _drafted(drafter: Drafter, target: TableModel) -> tuple[Generation, Proposed]:
    generation = _grown(drafter, target)
    return generation, drive(generation.propose(KeyedChance((0, 0), len(generation.context))))


def _verified(generation: Generation, proposed: Proposed, stream: int) -> list[Any]:
    drive(generation.settle(proposed, KeyedChance((stream, 0), len(generation.context))))
    return _lived(generation, stream, 3)
