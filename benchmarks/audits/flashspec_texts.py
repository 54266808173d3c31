"""flashspec's engine on SmolLM2, as functions of prompt ids and a seed.

    PYTHONPATH=benchmarks/audits DRAFT_FOLDER=smollm2-27 draftproof audit --black-box \
        flashspec_texts:draft_model --draft smollm2-27

For an environment with flashspec beside draftproof. DRAFT_FOLDER: a draft model with the target's
tokenizer. float32, temperature 1, LENGTH tokens a text whatever ends it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
from flashspec.engine import HuggingFaceDrafter, NgramDrafter, TargetModel
from transformers import AutoModelForCausalLM

from draftproof.models.pull import DEFAULT_MODEL, pulled_folder

LENGTH = 48
DEVICE, DTYPE = torch.device("cpu"), torch.float32


@cache
def model(folder: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPE)


def generate(prompt: Sequence[int], seed: int, strategy: str, drafter: Any) -> list[int]:
    name = str(pulled_folder(DEFAULT_MODEL))
    target = TargetModel(name, DEVICE, DTYPE, model=model(name))
    sampling = SamplingConfig(temperature=1.0, top_p=1.0, gamma=4, seed=seed)
    arms = BanditConfig(n_arms=1)
    config = FlashSpecConfig(
        device="cpu", drafter_strategy=strategy, sampling=sampling, bandit=arms
    )
    engine = SpeculativeEngine(config, [drafter], target)
    found = engine.generate(torch.tensor([list(prompt)]), max_new_tokens=LENGTH, eos_token_ids=[])
    return found.output_ids[0, : found.n_tokens_generated].tolist()[:LENGTH]


def draft_model(prompt: Sequence[int], seed: int) -> list[int]:
    """Its default: prompt lookup where the text repeats itself, else two tokens of the model's."""
    name = os.environ["DRAFT_FOLDER"]
    return generate(
        prompt, seed, "auto", HuggingFaceDrafter(name, DEVICE, DTYPE, model=model(name))
    )


def lookup(prompt: Sequence[int], seed: int) -> list[int]:
    return generate(prompt, seed, "bandit", NgramDrafter())
