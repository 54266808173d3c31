"""What a finite simulation gives on average, without simulating: the check on the simulator.

Generating N tokens takes a whole number of rounds and the last one is cut, so the mean of N /
rounds over short runs lies below the long-run tokens per round. The law of the number of rounds
follows by adding up round lengths one after another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftproof.core.formulas import round_length_law


@dataclass(frozen=True)
class FiniteExpectation:
    """Mean and standard deviation over runs of: rounds, tokens per round (total_tokens / rounds),
    and speedup."""

    rounds_mean: float
    rounds_std: float
    tokens_mean: float
    tokens_std: float
    speedup_mean: float
    speedup_std: float


def rounds_law(length_law: NDArray[np.float64], total_tokens: int) -> NDArray[np.float64]:
    """The law [total_tokens + 1] of the number of rounds that emit `total_tokens`; `length_law` as
    in `round_length_law`."""
    # chance that so many tokens are out after r rounds, none of them the last
    unfinished = np.zeros(total_tokens)
    unfinished[0] = 1.0
    still_going = [1.0]
    for _ in range(total_tokens):
        unfinished = np.convolve(unfinished, np.append(0.0, length_law))[:total_tokens]
        still_going.append(float(unfinished.sum()))
    return -np.diff(still_going, prepend=1.0)


def finite_expectation(
    acceptance_rate: float,
    total_tokens: int,
    num_draft: int,
    draft_time: float,
    target_time: float,
    verify_ratio: float = 1.0,
) -> FiniteExpectation:
    """Exact moments of what `SimulatedSpeculativeDecoder.simulate_generation` reports, for
    independent acceptance."""
    law = rounds_law(round_length_law(acceptance_rate, num_draft), total_tokens)
    rounds = np.arange(1, total_tokens + 1)
    mean, std = _moments(rounds.astype(np.float64), law[1:])
    tokens_mean, tokens_std = _moments(total_tokens / rounds, law[1:])
    gain = target_time / (num_draft * draft_time + target_time * verify_ratio)
    return FiniteExpectation(
        mean, std, tokens_mean, tokens_std, gain * tokens_mean, gain * tokens_std
    )


def _moments(values: NDArray[np.float64], law: NDArray[np.float64]) -> tuple[float, float]:
    mean = float(values @ law)
    return mean, float(np.sqrt((values - mean) ** 2 @ law))
