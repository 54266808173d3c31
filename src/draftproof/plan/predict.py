"""Tokens per round and speedup of one drafter at one draft length, from traces and costs, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftproof.bench.bootstrap import RESAMPLES, SEED, Interval, percentiles, resampled
from draftproof.core.formulas import expected_speedup
from draftproof.plan.costs import Costs
from draftproof.plan.rounds import Expected, Trace, expect, play

PLAYS = 24
"""Runs by chance a prompt, from which resampling draws."""


@dataclass(frozen=True)
class Choice:
    """A drafter with a draft length. speedup: plain time per token over speculative, after the first round; its interval is
    for one run on as many prompts as these. iid_speedup: the textbook formula at the mean overlap, same costs."""

    method: str
    drafter: str
    num_speculative_tokens: int
    tokens_per_round: float
    speedup: Interval
    iid_speedup: float
    shares: dict[str, float]


def predict(method: str, drafter: str, traces: Sequence[Trace], k: int, costs: Costs, alpha: float) -> Choice:
    """Foretell k drafts a round. alpha: the mean overlap, for the formula."""
    expected = [expect(trace, k) for trace in traces]
    rounds = sum(e.num_rounds for e in expected)
    point = speedup(expected, costs)
    low, high = _interval(traces, k, costs)
    iid = float(expected_speedup(alpha, k, costs.cost_ratio, float(costs.passes.curve()(k + 1))))
    shares = round_shares(expected, costs)
    tokens = sum(e.num_tokens for e in expected) / rounds
    return Choice(method, drafter, k, tokens, Interval(point, min(low, point), max(high, point)), iid, shares)


def speedup(expected: Sequence[Expected], costs: Costs) -> float:
    """Plain seconds over speculative seconds for the tokens after every text's first round; 1 when there are none."""
    tokens = sum(e.num_tokens - e.first_tokens for e in expected)
    by_drafts = np.sum([e.by_drafts for e in expected], axis=0)
    seconds = float(by_drafts @ costs.round_seconds(len(by_drafts) - 1))
    return tokens * costs.plain_seconds() / seconds if seconds > 0 else 1.0


def _interval(traces: Sequence[Trace], k: int, costs: Costs) -> tuple[float, float]:
    """Percentiles over resampled prompts, each with one of its runs by chance, and resampled timings."""
    rng = np.random.default_rng(SEED)
    plays = [[play(trace, k, rng) for _ in range(PLAYS)] for trace in traces]
    tokens = np.array([[p.num_tokens - p.first_tokens for p in runs] for runs in plays])
    by_drafts = np.array([[p.by_drafts for p in runs] for runs in plays])
    prompts = resampled(len(traces))
    runs = rng.integers(PLAYS, size=prompts.shape)
    seconds, plain = _resampled_costs(costs, k, rng)
    spent = (by_drafts[prompts, runs].sum(axis=1) * seconds).sum(axis=1)
    gained = tokens[prompts, runs].sum(axis=1) * plain
    kept = spent > 0
    return percentiles(gained[kept] / spent[kept]) if kept.any() else (1.0, 1.0)


def _resampled_costs(costs: Costs, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Round seconds [RESAMPLES, k + 1] and plain seconds [RESAMPLES], the medians of resampled repeats."""
    base, curve = costs.round_seconds(k), costs.passes.curve()
    target = costs.target_step
    lengths = np.array(curve.tokens)
    errors = np.stack([_medians(costs.passes.target[int(n)], rng) / np.median(costs.passes.target[int(n)]) for n in lengths])
    at = np.searchsorted(lengths, np.arange(k + 1) + 1).clip(max=len(lengths) - 1)
    passes = target * curve(np.arange(k + 1) + 1)
    seconds = base + passes * (errors[at].T - 1)
    if costs.passes.draft:
        draft_error = _medians(costs.passes.draft, rng) / costs.draft_step - 1
        seconds = seconds + draft_error[:, None] * np.arange(k + 1) * costs.draft_step
    return seconds, costs.plain_seconds() + target * (errors[0] - 1)


def _medians(times: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    array = np.asarray(times)
    return np.median(array[rng.integers(len(array), size=(RESAMPLES, len(array)))], axis=1)


def round_shares(expected: Sequence[Expected], costs: Costs) -> dict[str, float]:
    """Of an average round after the first, in units of a target step: draft, verify beyond one token, outside forwards."""
    by_drafts = np.sum([e.by_drafts for e in expected], axis=0)
    if by_drafts.sum() == 0:
        return {"draft": 0.0, "verify": 0.0, "outside": 0.0}
    weights, counts = by_drafts / by_drafts.sum(), np.arange(len(by_drafts))
    verify = float(weights @ costs.passes.curve()(counts + 1)) - 1
    draft = float(weights @ counts) * costs.cost_ratio
    whole = float(weights @ costs.round_seconds(len(by_drafts) - 1)) / costs.target_step
    return {"draft": draft, "verify": verify, "outside": whole - 1 - verify - draft}
