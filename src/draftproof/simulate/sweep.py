"""Many simulated generations at each of several acceptances, beside what theory says they average
to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftproof.core.formulas import checked_length
from draftproof.simulate.acceptance import AcceptanceProcess
from draftproof.simulate.decoder import SimulatedSpeculativeDecoder
from draftproof.simulate.finite import finite_expectation
from draftproof.simulate.generation import VerifyCost, run_generation

ACCEPTANCE_RATES = (0.5, 0.6, 0.7, 0.8, 0.9)


def sweep(
    acceptance_rates: Sequence[float] = ACCEPTANCE_RATES,
    *,
    total_tokens: int = 100,
    num_simulations: int = 50,
    num_draft: int = 5,
    draft_time_ms: float = 5,
    target_time_ms: float = 100,
    verify_ratio: VerifyCost | None = None,
    seed: int = 0,
) -> list[dict[str, float]]:
    """One row a rate: rate, speedup_mean, speedup_std, tokens_mean, tokens_std over
    `num_simulations` generations (tokens: tokens per round; std: of the runs, not of the mean), and
    the exact expectations speedup_expected, tokens_expected."""
    checked_length("seed", seed)
    rows = []
    for index, rate in enumerate(acceptance_rates):
        decoder = SimulatedSpeculativeDecoder(rate, seed=(seed, index))
        runs = [
            decoder.simulate_generation(
                total_tokens, num_draft, draft_time_ms, target_time_ms, verify_ratio
            )
            for _ in range(checked_length("num_simulations", num_simulations, least=1))
        ]
        verify = 1.0 if verify_ratio is None else float(verify_ratio(num_draft + 1))
        exact = finite_expectation(
            rate, total_tokens, num_draft, draft_time_ms, target_time_ms, verify
        )
        expected = {"speedup_expected": exact.speedup_mean, "tokens_expected": exact.tokens_mean}
        rows.append({"rate": rate, **summary(runs), **expected})
    return rows


def sweep_process(
    process: AcceptanceProcess,
    lengths: Sequence[int],
    *,
    total_tokens: int = 100,
    num_simulations: int = 50,
    draft_time_ms: float = 5,
    target_time_ms: float = 100,
    verify_ratio: VerifyCost | None = None,
    seed: int = 0,
) -> list[dict[str, float]]:
    """One row a draft length, for any acceptance process: num_draft, the keys of `summary`,
    draft_acceptance_rate, and tokens_long_run, the process's own mean over a run without end."""
    checked_length("seed", seed)
    rows = []
    for length in lengths:
        runs = [
            run_generation(
                process.open(np.random.default_rng((seed, length, run))),
                total_tokens,
                length,
                draft_time_ms,
                target_time_ms,
                verify_ratio,
            )
            for run in range(checked_length("num_simulations", num_simulations, least=1))
        ]
        rate = sum(run["accepted"] for run in runs) / max(1, sum(run["drafted"] for run in runs))
        long_run = process.expected_tokens(length)
        rows.append(
            {
                "num_draft": length,
                **summary(runs),
                "draft_acceptance_rate": rate,
                "tokens_long_run": long_run,
            }
        )
    return rows


def summary(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean and standard deviation over the runs, of speedup and of tokens per round."""
    speedups, tokens = [run["speedup"] for run in runs], [run["tokens_per_round"] for run in runs]
    return {
        "speedup_mean": float(np.mean(speedups)),
        "speedup_std": float(np.std(speedups)),
        "tokens_mean": float(np.mean(tokens)),
        "tokens_std": float(np.std(tokens)),
    }
