"""Costs, plans and choices made without models or clocks, for the tests of `plan`."""

from __future__ import annotations

from typing import Any

import numpy as np

from draftproof import SamplingParams
from draftproof.costs.outside_passes import Outside
from draftproof.costs.pass_timer import PassTimes
from draftproof.costs.timings import Timings
from draftproof.decode.config import SpeculativeConfig
from draftproof.plan.candidate import Candidate
from draftproof.plan.forcing import Text
from draftproof.plan.plan import Foretold, Plan, mean_overlap
from draftproof.plan.predict import Recorded, predict
from draftproof.plan.rounds import trace_of_coins
from draftproof.workloads.prompt_files import Encoded, Item

TARGET = np.random.default_rng(3).dirichlet(np.full(8, 0.5), size=8)
CONFIG = SpeculativeConfig.from_dict({"method": "draft_model", "model": "D"})


def costs(
    draft: float, verify: float, *, fixed: float = 0.0, each: float = 0.0, noise: float = 0.0
) -> Timings:
    """A target step of 1 s; T(n) rises by `verify` a token; the draft step takes `draft` s. noise:
    by how much everything but the single step drifts from one of three visits to the next."""
    visits = []
    for drift in (1 - noise, 1.0, 1 + noise):
        target = {
            n: (1 + verify * (n - 1),) if n == 1 else (drift * (1 + verify * (n - 1)),)
            for n in range(1, 34)
        }
        visits.append(PassTimes(100, target, {1: (draft * drift,)} if draft else {}))
    return Timings(tuple(visits), Outside(fixed, each, 0.0))


def plan_of(coins: float, cost: Timings, lengths: Any = (1, 2, 4, 8), prompts: int = 4) -> Plan:
    traces = tuple(
        trace_of_coins(np.full(200, coins), np.full(200, coins), max(lengths))
        for _ in range(prompts)
    )
    alpha = mean_overlap(traces)
    recorded = Recorded(traces, range(prompts))
    choices = tuple(
        predict("draft_model", "draft_model D", recorded, k, cost, alpha.point) for k in lengths
    )
    foretold = Foretold(
        Candidate(CONFIG), traces, cost, alpha, (coins,) * 8, {"chat": coins}, None, 1.0, choices
    )
    encoded = tuple(Encoded(Item("x", "chat", "line"), (1, 2)) for _ in traces)
    texts = tuple(Text((1, 2), (3,) * 200) for _ in traces)
    return Plan(encoded, texts, SamplingParams(temperature=0, seed=0), (foretold,))


def choice_of(k: int) -> Any:
    return next(c for c in plan_of(0.9, costs(0.1, 0.02), (k,)).choices)
