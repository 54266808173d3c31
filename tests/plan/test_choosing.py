"""Drafters that are chosen round by round, over a recorded text: the rounds are those of a real
run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.controllers import length_controller
from draftproof.decode.length import LengthController, Member
from draftproof.decode.lengths import LENGTHS
from draftproof.drafters.auto import Auto
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.ngram import NGram
from draftproof.drafters.suffix import Suffix
from draftproof.errors import UsageError
from draftproof.plan.candidate import Candidate
from draftproof.plan.choosing import walk
from draftproof.plan.document import plan_document, sections
from draftproof.plan.forcing import Text
from draftproof.plan.plan import make_plan
from draftproof.plan.rounds import expect
from draftproof.report.page import comparison_page
from draftproof.workloads.prompt_files import Encoded, Item
from random_heads import random_head, random_state

LAWS = np.random.default_rng(5).dirichlet(np.full(8, 0.2), size=8)
TARGET = TableModel(LAWS, name="target", hidden=random_state)
DRAFT = TableModel(
    0.6 * LAWS + 0.4 * np.random.default_rng(6).dirichlet(np.full(8, 0.3), size=8), name="draft"
)
COSTS = {"verify": {"1": 1.0, "4": 1.2, "17": 1.6}, "draft": 0.05, "read": 0.002, "prompt": 0.02}
FREE = RoundCosts.from_dict(COSTS)
PROMPT = (0, 1, 2, 3, 0, 1)

DRAFTERS = {
    "suffix": lambda: Suffix(),
    "head": lambda: Eagle(random_head("eagle3"), "greedy", name="eagle3"),
    "suffix and ngram": lambda: Auto({"suffix": Suffix(), "ngram": NGram()}),
    "suffix and head": lambda: Auto(
        {"suffix": Suffix(), "eagle3": Eagle(random_head("eagle3"), "greedy", name="eagle3")}
    ),
    "suffix and a model": lambda: Auto(
        {"suffix": Suffix(), "draft_model": DraftModel(DRAFT, "greedy")}
    ),
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", DRAFTERS)
def test_rounds_are_those_of_a_real_run(name: str, temperature: float) -> None:
    """Drafter, length, reason and tokens of every one of them, under survival lengths and
    auto-off."""
    config = {"num_speculative_tokens": 8, "adaptive": "survival", "costs": COSTS, "rule": "match"}
    made = SpeculativeDecoder(DRAFTERS[name](), TARGET, speculative_config=config)
    met: set[str | None] = set()
    for seed in range(6):
        params = SamplingParams(max_tokens=60, seed=seed, temperature=temperature)
        result = made.generate([*PROMPT, seed % 8], params)
        assert made.drafter is not None
        controller = length_controller(made.config, made.drafter)
        assert controller is not None
        text = Text(result.prompt_token_ids, result.token_ids)
        walked = walk(made.drafter, controller, TARGET, text, params, 8)
        found = walked.rounds
        real = [
            replace(r, seconds=f.seconds, overlaps=(), reads_prompt=False)
            for r, f in zip(result.rounds, found, strict=True)
        ]
        assert found == real
        assert sum(walked.times) >= len(found)
        met |= {record.drafter for record in found if record.draft_tokens}
    assert len(met) == len(made.drafter.members)


DRAWN = SpeculativeConfig.from_dict(
    {"method": "draft_model", "model": "D", "num_speculative_tokens": 3}
)


@pytest.mark.parametrize("rule", ["token", "match"])
def test_drawn_drafts_are_accepted_as_often_as_the_exact_expectation_says(rule: str) -> None:
    """Mean rounds of 1,500 walks of one text at a fixed length, against the exact chain of
    `expect`: a right walk is more than 4.5 standard errors off with a chance of 1e-5; a walk 5% off
    in its rounds is missed with one below 1e-6."""
    candidate = Candidate(replace(DRAWN, rule=rule), DRAFT)
    params = SamplingParams(max_tokens=20, seed=1, temperature=1.0)
    result = candidate.decoder(TARGET).plain.generate(PROMPT, params)
    text = Text(result.prompt_token_ids, result.token_ids)
    (judge,) = candidate.judges(TARGET, params)
    exact = expect(
        candidate.read(TARGET, [text], params, 3, lambda *_: None).chains(3)[0], 3
    ).num_rounds
    rng = np.random.default_rng(0)
    rounds = []
    for _ in range(1500):
        controller = LengthController(
            [Member("draft_model", LENGTHS["fixed"].make(FREE), FREE, auto_off=False)]
        )
        walked = walk(
            candidate.drafter(TARGET), controller, TARGET, text, params, 3, judge=judge, rng=rng
        )
        rounds.append(len(walked.rounds))
    error = np.std(rounds) / np.sqrt(len(rounds))
    assert error < 0.01 * exact
    assert abs(np.mean(rounds) - exact) < 4.5 * error


def test_drawn_drafts_need_a_judge_and_a_rule_of_single_coins() -> None:
    made = SpeculativeDecoder(
        DraftModel(TARGET), TARGET, speculative_config={"adaptive": "survival", "costs": COSTS}
    )
    assert made.drafter is not None
    controller = length_controller(made.config, made.drafter)
    assert controller is not None
    with pytest.raises(UsageError, match="followed along a text one by one"):
        walk(made.drafter, controller, TARGET, Text(PROMPT, (1, 2, 3, 4)), SamplingParams(), 8)


AUTO = {"method": "auto", "costs": COSTS}


def encoded(seed: int) -> Encoded:
    return Encoded(Item("x", "chat", "line"), (*PROMPT, seed % 8))


def test_a_plan_of_auto_has_the_rounds_of_real_runs() -> None:
    """Greedy: the same texts, so tokens a round are not estimated but known."""
    params = SamplingParams(max_tokens=60, seed=0, temperature=0.0)
    prompts = [encoded(seed) for seed in range(6)]
    candidate = Candidate(SpeculativeConfig.from_dict(AUTO))
    document = plan_document(make_plan(TARGET, [candidate], prompts, params, (1, 2)), {})
    (choice,) = document["choices"]
    results = [candidate.decoder(TARGET).generate(list(prompt.ids), params) for prompt in prompts]
    real = sum(len(r.token_ids) for r in results) / sum(len(r.rounds) for r in results)
    assert choice["tokens_per_round"] == pytest.approx(real)
    assert choice["chosen"] and choice["iid_speedup"] is None
    assert document["drafters"][0]["drafter"] == "auto of suffix, ngram"
    chosen = document["speculative_config"]
    assert chosen is None or chosen["method"] == "auto"
    assert comparison_page([("plan", document)], sections).count("up to 16") >= 1


def test_sampled_drafts_of_auto_bring_what_real_runs_do() -> None:
    """Tokens a round of 40 sampled texts with 6 walks each, against real runs of other seeds: 5
    standard errors of the real runs' mean; a plan 10% off would be missed with a chance below
    1e-4."""
    config = SpeculativeConfig.from_dict({**AUTO, "model": "D", "rule": "token"})
    candidate = Candidate(config, DRAFT)
    params = SamplingParams(max_tokens=40, seed=0, temperature=1.0)
    prompts = [encoded(seed) for seed in range(8)]
    plan = make_plan(TARGET, [candidate], prompts, params, (1, 2), answers=5)
    decoder = candidate.decoder(TARGET)
    ratios = []
    for seed in range(150):
        result = decoder.generate(list(prompts[seed % 8].ids), replace(params, seed=1000 + seed))
        ratios.append(len(result.rounds) / len(result.token_ids))
    error = float(np.std(ratios) / np.sqrt(len(ratios)))
    assert error < 0.02 * float(np.mean(ratios))
    assert abs(1 / plan.choices[0].tokens_per_round - np.mean(ratios)) < 5 * error


@pytest.mark.parametrize(
    ("changes", "batch", "said"),
    [
        ({}, (1, 4), "for one text at a time"),
        ({"adaptive": "live"}, (1,), "follows the clock"),
        (
            {"drafters": ["suffix", "lookahead"]},
            (1,),
            "cannot predict 'lookahead' among the drafters of auto",
        ),
        ({"model": "D", "rule": "block"}, (1,), "under the rules token and match, not block"),
    ],
)
def test_what_cannot_be_predicted_of_auto_is_refused(
    changes: dict[str, object], batch: tuple[int, ...], said: str
) -> None:
    candidate = Candidate(
        SpeculativeConfig.from_dict(AUTO | changes), DRAFT if "model" in changes else None
    )
    with pytest.raises(UsageError, match=said):
        make_plan(
            TARGET,
            [candidate],
            [encoded(0)],
            SamplingParams(max_tokens=8, seed=0),
            (1, 2),
            batch=batch,
        )
