"""Predictions from given traces and costs: against the formula, and an interval that holds further
runs."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.costs.pass_timer import PassTimes
from draftproof.costs.timings import Timings
from draftproof.plan.predict import Recorded, predict, speedup
from draftproof.plan.rounds import Expected, play, trace_of_coins
from made_plans import costs


def test_prediction_from_positions_is_the_formula_where_positions_are_alike() -> None:
    cost = costs(0.11, 0.0)
    traces = [trace_of_coins(np.full(3000, 0.8), np.full(3000, 0.8), 5)] * 2
    choice = predict("draft_model", "D", Recorded(traces, (0, 1)), 5, cost, 0.8)
    assert choice.speedup.point == pytest.approx(choice.iid_speedup, rel=5e-3)
    assert choice.speedup.low <= choice.speedup.point <= choice.speedup.high


def test_bursts_make_the_average_mislead() -> None:
    """Half the text certain, half hopeless: a long draft gains more than alpha 0.5 says."""
    coins = np.repeat([1.0, 0.0], 400)
    choice = predict(
        "draft_model",
        "D",
        Recorded([trace_of_coins(coins, coins, 8)], (0,)),
        8,
        costs(0.01, 0.0),
        0.5,
    )
    assert choice.tokens_per_round == pytest.approx(800 / (400 / 9 + 400), rel=0.02)
    # the formula counts successes that come in pieces of no use
    assert choice.iid_speedup > choice.speedup.point


def test_the_interval_holds_most_runs_on_the_same_prompts() -> None:
    """Nominal 90%: 60 plans of one text a prompt at a fixed clock, each against a run of its own on
    the same 8 prompts. With a true coverage of 0.9 fewer than 43 hits have a chance below 1e-4; at
    0.6 or less more than 43 have one below 0.03."""
    rng, cost, hits = np.random.default_rng(1), costs(0.1, 0.05), 0
    for _ in range(60):
        easy = rng.uniform(0.2, 0.95, size=8)  # prompts differ
        coins = [np.clip(e + rng.normal(0, 0.1, 48), 0, 1) for e in easy]
        traces = [trace_of_coins(c, c, 4) for c in coins]
        choice = predict("", "", Recorded(traces, range(8)), 4, cost, 0.5)
        runs = [play(trace, 4, rng) for trace in traces]
        hits += choice.speedup.low <= speedup(runs, cost) <= choice.speedup.high
    assert hits >= 43


def test_catching_up_is_paid_for() -> None:
    """Ten rounds of one draft, four of them after a draft that was kept: each pays a quarter of a
    draft pass more."""
    visit = PassTimes(10, {1: (1.0,), 2: (1.0,)}, {1: (0.4,), 2: (0.5,)})
    run = Expected(np.array([0.0, 10.0]), 1, 2.0, 17, catch_ups=4.0)
    assert speedup([run], Timings((visit,))) == pytest.approx(15 / (10 * 1.4 + 4 * 0.1))
