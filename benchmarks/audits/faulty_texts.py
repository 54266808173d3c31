"""An engine that is wrong on purpose: after a rejection it draws from the target's whole law.

    PYTHONPATH=benchmarks/audits python benchmarks/audits/serve_function.py faulty_texts:sample 8123

SmolLM2 in float32, drafted by itself without three of its layers; temperature 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.audit.white_box.planted import FAULTS, PlantedEngine
from draftproof.models.load import load_model
from draftproof.models.pull import DEFAULT_MODEL

LENGTH = 48
CHAIN = {"method": "layer_skip", "skip_layers": [9, 13, 17], "num_speculative_tokens": 4}


@cache
def engine(fault: str) -> PlantedEngine:
    target = load_model(DEFAULT_MODEL, dtype="float32")
    config = CHAIN | {"rule": "token"}
    decoder = SpeculativeDecoder(None, target, target.tokenizer, speculative_config=config)
    return PlantedEngine(decoder, FAULTS[fault])


def sample(prompt: Sequence[int], seed: int, fault: str = "no residual") -> list[int]:
    params = SamplingParams(temperature=1.0, max_tokens=LENGTH, seed=seed)
    rounds = engine(fault).rounds(prompt, params)
    return [token for seen in rounds for token in seen.tokens]


def wrong_q(prompt: Sequence[int], seed: int) -> list[int]:
    """The ratio is told the law that the draft before was drawn from."""
    return sample(prompt, seed, "wrong q")
