"""OpenVINO GenAI on a converted model, as functions of prompt ids and a seed, for `serve_function.py`.

    MODEL=FOLDER PYTHONPATH=benchmarks/audits python benchmarks/audits/serve_function.py openvino_genai_texts:plain 8125

FOLDER holds `openvino_model.xml`, stateful as GenAI wants it, and a converted tokenizer. Keys and values are kept in float32:
GenAI's own choice on a CPU is 8 bits, which moves the logits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import openvino
import openvino_genai

LENGTH = 48
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


@cache
def pipeline(lookup: bool) -> Any:
    options: dict[str, Any] = dict(EXACT, prompt_lookup=True) if lookup else dict(EXACT)
    return openvino_genai.LLMPipeline(os.environ["MODEL"], "CPU", **options)


def generate(prompt: Sequence[int], seed: int, lookup: bool) -> list[int]:
    config = openvino_genai.GenerationConfig()
    config.do_sample, config.temperature, config.rng_seed = True, 1.0, seed
    config.max_new_tokens, config.ignore_eos = LENGTH, True
    if lookup:
        config.num_assistant_tokens, config.max_ngram_size = 5, 3
    ids = np.array([list(prompt)], np.int64)
    mask = openvino.Tensor(np.ones_like(ids))
    text = pipeline(lookup).generate(openvino_genai.TokenizedInputs(openvino.Tensor(ids), mask), config)
    return [int(token) for token in text.tokens[0]]


def plain(prompt: Sequence[int], seed: int) -> list[int]:
    return generate(prompt, seed, False)


def prompt_lookup(prompt: Sequence[int], seed: int) -> list[int]:
    return generate(prompt, seed, True)
