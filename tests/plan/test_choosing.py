"""Drafters that are chosen round by round, over a recorded text: the rounds are those of a real run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.decode.adapt import length_controller
from draftproof.drafters.auto import Auto
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.ngram import NGram
from draftproof.drafters.suffix import Suffix
from draftproof.errors import UsageError
from draftproof.plan.choosing import walk
from draftproof.plan.forcing import Text
from random_heads import random_head, random_state

LAWS = np.random.default_rng(5).dirichlet(np.full(8, 0.2), size=8)
TARGET = TableModel(LAWS, name="target", hidden=random_state)
DRAFT = TableModel(0.6 * LAWS + 0.4 * np.random.default_rng(6).dirichlet(np.full(8, 0.3), size=8), name="draft")
COSTS = {"verify": {"1": 1.0, "4": 1.2, "17": 1.6}, "draft": 0.05, "read": 0.002, "prompt": 0.02}
PROMPT = (0, 1, 2, 3, 0, 1)

DRAFTERS = {
    "suffix": lambda: Suffix(),
    "head": lambda: Eagle(random_head("eagle3"), "greedy", name="eagle3"),
    "suffix and ngram": lambda: Auto({"suffix": Suffix(), "ngram": NGram()}),
    "suffix and head": lambda: Auto({"suffix": Suffix(), "eagle3": Eagle(random_head("eagle3"), "greedy", name="eagle3")}),
    "suffix and a model": lambda: Auto({"suffix": Suffix(), "draft_model": DraftModel(DRAFT, "greedy")}),
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", DRAFTERS)
def test_rounds_are_those_of_a_real_run(name: str, temperature: float) -> None:
    """Drafter, length, reason and tokens of every one of them, under survival lengths and auto-off."""
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
        found = walk(made.drafter, controller, TARGET, text, params, 8)
        real = [
            replace(r, seconds=f.seconds, overlaps=(), reads_prompt=False) for r, f in zip(result.rounds, found, strict=True)
        ]
        assert found == real
        assert controller.time >= len(found)
        met |= {record.drafter for record in found if record.draft_tokens}
    assert len(met) == len(getattr(made.drafter, "members", [0]))


def test_drawn_drafts_are_refused() -> None:
    made = SpeculativeDecoder(DraftModel(TARGET), TARGET, speculative_config={"adaptive": "survival", "costs": COSTS})
    assert made.drafter is not None
    controller = length_controller(made.config, made.drafter)
    assert controller is not None
    with pytest.raises(UsageError, match="drafts that are drawn cannot be followed"):
        walk(made.drafter, controller, TARGET, Text(PROMPT, (1, 2, 3, 4)), SamplingParams(), 8)
