"""Pipelines, arrays and sets of parameters that the tests of LawPipeline share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Array

INF = math.inf
CONTEXT = [1, 2, 3]


def pipeline(
    vocab_size: int = 4, num_prompt_tokens: int = 1, eos: tuple[int, ...] = (), **fields: Any
) -> LawPipeline:
    return LawPipeline(
        SamplingParams(max_tokens=None, **fields),
        num_prompt_tokens=num_prompt_tokens,
        vocab_size=vocab_size,
        eos_token_ids=eos,
    )


def logits_of(*probabilities: float) -> Array:
    return np.log(np.array(probabilities))


MAKERS = {
    "numpy float64": lambda values: np.array(values, dtype=np.float64),
    "numpy float32": lambda values: np.array(values, dtype=np.float32),
    "torch float64": lambda values: torch.tensor(values, dtype=torch.float64),
    "torch float32": lambda values: torch.tensor(values, dtype=torch.float32),
    "torch bfloat16": lambda values: torch.tensor(values, dtype=torch.bfloat16),
    "torch float16": lambda values: torch.tensor(values, dtype=torch.float16),
}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())

FIELDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 0.7},
    {"top_k": 3},
    {"top_p": 0.8},
    {"min_p": 0.2},
    {"temperature": 0.6, "top_k": 5, "top_p": 0.9, "min_p": 0.05},
    {"logit_bias": {1: 2.0, 2: -INF}},
    {"repetition_penalty": 1.5, "frequency_penalty": 0.4, "presence_penalty": -0.3},
    {
        "bad_words_ids": [[3, 0], [1, 2, 3], [4]],
        "suppress_tokens": [5],
        "min_tokens": 6,
        "stop_token_ids": [6],
    },
    {"allowed_token_ids": [0, 2, 4, 6], "temperature": 1.4, "top_p": 0.7},
    {"logits_processors": [lambda ids, scores: scores + ids.float().mean()], "top_k": 4},
    {"logits_warpers": [lambda ids, scores: scores * 1.5], "top_p": 0.9},
]
any_fields = pytest.mark.parametrize(
    "fields", FIELDS, ids=[", ".join(fields) or "plain" for fields in FIELDS]
)
