"""Acceptance processes: each one's own mean, drawn and exact, and recorded runs played again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from draftproof.core.records import Origin, Round
from draftproof.decode.record import RecordHeader, write_rounds
from draftproof.errors import UsageError
from draftproof.simulate.acceptance import (
    AcceptanceProcess,
    IndependentAcceptance,
    MarkovAcceptance,
    PositionAcceptance,
    ReplayAcceptance,
)
from draftproof.simulate.records import parse_acceptance, read_replay

PROCESSES = [
    IndependentAcceptance(0.8),
    PositionAcceptance((0.9, 0.5, 0.8)),
    MarkovAcceptance.easy_and_hard(0.9, 0.3, 0.7),
    MarkovAcceptance((0.5, 0.9, 0.0), ((0.2, 0.8, 0.0), (0.1, 0.6, 0.3), (0.5, 0.0, 0.5))),
    ReplayAcceptance(((3, 3), (3, 0), (0, 0), (3, 2))),
]


def mean_tokens(process: AcceptanceProcess, num_draft: int, rounds: int, seed: int = 0) -> float:
    next_round = process.open(np.random.default_rng(seed))
    return 1 + float(np.mean([next_round(num_draft)[1] for _ in range(rounds)]))


@pytest.mark.parametrize("num_draft", [1, 3])
@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: type(process).__name__)
def test_drawn_rounds_have_the_exact_mean(process: AcceptanceProcess, num_draft: int) -> None:
    """20,000 rounds of 1 to 4 tokens: standard error at most 0.01, about 0.02 where rounds depend
    on each other; 6 of them."""
    assert mean_tokens(process, num_draft, 20_000) == pytest.approx(
        process.expected_tokens(num_draft), abs=0.12
    )


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: type(process).__name__)
def test_a_round_accepts_at_most_what_it_drafts_and_a_seed_repeats_it(
    process: AcceptanceProcess,
) -> None:
    first, second = (process.open(np.random.default_rng(3)) for _ in range(2))
    for _ in range(100):
        drafted, accepted = first(3)
        assert 0 <= accepted <= drafted <= 3
        assert second(3) == (drafted, accepted)


def test_without_drafts_a_round_emits_one_token() -> None:
    for process in PROCESSES:
        assert process.open(np.random.default_rng(0))(0) == (0, 0)
        assert process.expected_tokens(0) == pytest.approx(1)


def test_a_markov_process_with_equal_rates_is_independent() -> None:
    assert MarkovAcceptance.easy_and_hard(0.8, 0.8, 0.9).expected_tokens(4) == pytest.approx(3.3616)


def test_stretches_bring_less_than_their_average() -> None:
    """Half the text at 0.95, half at 0.35: the average is 0.65, but hard text takes more rounds."""
    process = MarkovAcceptance.easy_and_hard(0.95, 0.35, 0.98)
    assert process.expected_tokens(4) < IndependentAcceptance(0.65).expected_tokens(4)


def test_replay_is_the_record_in_its_order() -> None:
    record = ((3, 3), (3, 0), (2, 1))
    next_round = ReplayAcceptance(record).open(np.random.default_rng(0))
    played = [next_round(3) for _ in range(6)]
    assert played[:3] == played[3:] and sorted(played[:3]) == sorted(record)
    cut = ReplayAcceptance(record).open(np.random.default_rng(0))
    assert [cut(1) for _ in range(3)] == [(1, min(1, accepted)) for _, accepted in played[:3]]
    assert ReplayAcceptance(record).expected_tokens(1) == pytest.approx(1 + 2 / 3)


def recorded(drafts: int, accepted: int, emitted: int | None = None) -> Round:
    tokens = tuple(range(accepted + 1))[:emitted]
    origins: tuple[Origin, ...] = ("draft",) * len(tokens)
    parents = tuple(range(-1, drafts - 1))
    return Round(
        5, tuple(range(drafts)), parents, tokens, origins, accepted, min(accepted + 1, drafts)
    )


def test_replay_reads_recorded_runs_and_leaves_cut_rounds_out(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    rounds = [recorded(4, 4), recorded(4, 1), recorded(0, 0), recorded(4, 2, emitted=2)]
    write_rounds(path, RecordHeader("target", "draft_model", "token", (1, 2)), rounds)
    assert read_replay(path) == ReplayAcceptance(((4, 4), (4, 1), (0, 0)))
    assert parse_acceptance(f"replay:{path}") == (read_replay(path), 4)


def test_replay_refuses_trees_and_empty_records(tmp_path: Path) -> None:
    path, header = tmp_path / "rounds.jsonl", RecordHeader("target", "medusa", "match", (1,))
    write_rounds(path, header, [replace(recorded(2, 1), draft_parents=(-1, -1))])
    with pytest.raises(UsageError, match="records drafts that branch"):
        read_replay(path)
    write_rounds(path, header, [recorded(0, 0)] * 3)
    with pytest.raises(UsageError, match="records no drafts"):
        read_replay(path)
    write_rounds(path, header, [])
    with pytest.raises(UsageError, match="holds no rounds"):
        read_replay(path)


def test_descriptions_on_the_command_line() -> None:
    assert parse_acceptance("position:0.9,0.7") == (PositionAcceptance((0.9, 0.7)), 2)
    process, longest = parse_acceptance("markov:0.95,0.3,0.9")
    assert process == MarkovAcceptance.easy_and_hard(0.95, 0.3, 0.9) and longest > 1000


@pytest.mark.parametrize(
    "text", ["", "position:", "position:a", "markov:0.9,0.3", "replay:", "coin:0.5"]
)
def test_other_descriptions_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="acceptance is position:"):
        parse_acceptance(text)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: IndependentAcceptance(1.1), "alpha must be between 0 and 1, got 1.1"),
        (lambda: PositionAcceptance((0.5, -1)), "rates must be between 0 and 1, got -1"),
        (lambda: MarkovAcceptance.easy_and_hard(2, 0, 0.5), "rates must be between 0 and 1, got 2"),
        (lambda: MarkovAcceptance((0.5, 0.5), ((1.0, 0.0),)), "transition must be a 2 by 2 table"),
        (
            lambda: MarkovAcceptance.easy_and_hard(0.5, 0.5, 1.5),
            "transition must be a 2 by 2 table",
        ),
        (lambda: ReplayAcceptance(()), "holds no rounds"),
        (lambda: ReplayAcceptance(((2, 3),)), "got 3 of 2"),
        (
            lambda: PositionAcceptance((0.5,)).expected_tokens(2),
            "given for 1 positions, 2 drafts were asked for",
        ),
        (
            lambda: ReplayAcceptance(((2, 1),)).expected_tokens(3),
            "longest draft has 2 tokens, 3 were asked for",
        ),
    ],
)
def test_processes_that_cannot_be(make: object, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make()  # type: ignore[operator]
