"""How many drafts of a round are accepted: processes to simulate with, from the textbook's coin to
a recorded run.

A process is opened with a generator and then gives one round after another: `next_round(num_draft)`
-> (drafted, accepted). Real acceptance is not a coin: it changes along the text
(`MarkovAcceptance`), falls with the position in the draft (`PositionAcceptance`) and comes in
bursts no formula has (`ReplayAcceptance`). `expected_tokens(num_draft)` is exact for the first
three and the record's own mean for the last: tokens a round emits, replacement or bonus included,
over a long run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from draftproof.core.formulas import expected_tokens, expected_tokens_by_position
from draftproof.core.markov import tokens_per_round
from draftproof.errors import UsageError

NextRound = Callable[[int], tuple[int, int]]


class AcceptanceProcess(Protocol):
    """`open` starts a run of its own; two opened with equal generators give equal rounds."""

    def open(self, rng: np.random.Generator) -> NextRound:
        """The function that draws the next round: number of drafts wanted -> (drafted,
        accepted)."""

    def expected_tokens(self, num_draft: int) -> float:
        """Mean tokens a round emits with drafts of this length."""


@dataclass(frozen=True)
class IndependentAcceptance:
    """Every draft is accepted with the same chance `rate`, independently: the assumption behind the
    closed formulas."""

    rate: float

    def __post_init__(self) -> None:
        expected_tokens(self.rate, 1)  # refuses a rate outside [0, 1]

    def open(self, rng: np.random.Generator) -> NextRound:
        return lambda num_draft: (num_draft, _leading(rng.random(num_draft) < self.rate))

    def expected_tokens(self, num_draft: int) -> float:
        return float(expected_tokens(self.rate, num_draft))


@dataclass(frozen=True)
class PositionAcceptance:
    """Draft i, once reached, is accepted with chance rates[i] (vLLM's acceptance per position, made
    conditional)."""

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        expected_tokens_by_position(self.rates)

    def open(self, rng: np.random.Generator) -> NextRound:
        return lambda num_draft: (
            num_draft,
            _leading(rng.random(num_draft) < self._head(num_draft)),
        )

    def expected_tokens(self, num_draft: int) -> float:
        return float(expected_tokens_by_position(self._head(num_draft)))

    def _head(self, num_draft: int) -> tuple[float, ...]:
        if num_draft > len(self.rates):
            raise UsageError(
                f"acceptance is given for {len(self.rates)} positions, {num_draft} "
                "drafts were asked for"
            )
        return self.rates[:num_draft]


@dataclass(frozen=True)
class MarkovAcceptance:
    """Text in stretches: a hidden state moves by `transition` [states, states] at every token that
    enters the text, and a draft at a position in state s is accepted with chance rates[s]."""

    rates: tuple[float, ...]
    transition: tuple[tuple[float, ...], ...]

    @classmethod
    def easy_and_hard(cls, easy: float, hard: float, stay: float) -> MarkovAcceptance:
        """Two states with these acceptance rates; each token the text stays in its stretch with
        chance `stay`."""
        return cls((easy, hard), ((stay, 1 - stay), (1 - stay, stay)))

    def open(self, rng: np.random.Generator) -> NextRound:
        running = np.cumsum(self._moves(), axis=1)
        state = int(rng.integers(len(self.rates)))

        def next_round(num_draft: int) -> tuple[int, int]:
            nonlocal state
            accepted, going = 0, True
            while going:
                going = accepted < num_draft and bool(rng.random() < self.rates[state])
                accepted += going
                state = int(
                    np.searchsorted(running[state], rng.random() * running[state, -1], side="right")
                )
            return num_draft, accepted

        return next_round

    def expected_tokens(self, num_draft: int) -> float:
        rates, moves = np.asarray(self.rates)[:, None], self._moves()
        return tokens_per_round(rates * moves, (1 - rates) * moves, moves, num_draft)

    def _moves(self) -> NDArray[np.float64]:
        return np.asarray(self.transition, dtype=np.float64)

    def __post_init__(self) -> None:
        expected_tokens_by_position(self.rates)
        moves = self._moves()
        if (
            moves.shape != (len(self.rates),) * 2
            or np.any(moves < 0)
            or not np.allclose(moves.sum(axis=-1), 1)
        ):
            raise UsageError(
                f"transition must be a {len(self.rates)} by {len(self.rates)} table of "
                "rows that sum to 1"
            )


@dataclass(frozen=True)
class ReplayAcceptance:
    """The rounds of a recorded run in their order, from a random start, round and round: (drafted,
    accepted) pairs.

    A wanted length below the recorded one cuts each round; a longer one is refused, because nobody
    knows what would have been accepted. The record's rounds keep their places in the text, although
    a shorter draft would have begun more of them."""

    rounds: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.rounds:
            raise UsageError("the record holds no rounds to replay")
        if wrong := next((r for r in self.rounds if not 0 <= r[1] <= r[0]), None):
            raise UsageError(
                "a recorded round accepts between 0 and all of its drafts, got "
                f"{wrong[1]} of {wrong[0]}"
            )

    @property
    def longest(self) -> int:
        """The longest recorded draft."""
        return max(drafted for drafted, _ in self.rounds)

    def open(self, rng: np.random.Generator) -> NextRound:
        start = int(rng.integers(len(self.rounds)))
        rounds = cycle(self.rounds[start:] + self.rounds[:start])

        def next_round(num_draft: int) -> tuple[int, int]:
            self._check(num_draft)
            drafted, accepted = next(rounds)
            return min(drafted, num_draft), min(accepted, num_draft)

        return next_round

    def expected_tokens(self, num_draft: int) -> float:
        self._check(num_draft)
        return 1.0 + float(np.mean([min(accepted, num_draft) for _, accepted in self.rounds]))

    def _check(self, num_draft: int) -> None:
        if num_draft > self.longest:
            raise UsageError(
                f"the record's longest draft has {self.longest} tokens, {num_draft} were asked for"
            )


def _leading(successes: NDArray[np.bool_] | Sequence[bool]) -> int:
    """How many successes come before the first failure."""
    return int(np.argmin(np.append(successes, False)))
