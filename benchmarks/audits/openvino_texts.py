"""OpenVINO GenAI's own pipelines on SmolLM2, as functions of prompt ids and a seed.

    PYTHONPATH=benchmarks/audits TARGET_FOLDER=smollm2-ov python \
        benchmarks/audits/serve_function.py openvino_texts:plain 8123

For an environment with openvino-genai alone. TARGET_FOLDER, and DRAFT_FOLDER for `draft_model`,
hold converted models (`optimum-cli export openvino`), or name a GGUF file. Temperature 1, no cut
of the law, LENGTH tokens a text whatever ends it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

import numpy as np
import openvino
import openvino_genai as genai

LENGTH = 48
TARGET, DRAFT = os.environ["TARGET_FOLDER"], os.environ.get("DRAFT_FOLDER", "")
PRECISION = {"INFERENCE_PRECISION_HINT": os.environ.get("PRECISION", "f32")}


@cache
def pipeline(kind: str) -> genai.LLMPipeline:
    more = {} if kind != "lookup" else {"prompt_lookup": True}
    if kind == "draft":
        more["draft_model"] = genai.draft_model(DRAFT, "CPU", **PRECISION)
    made = genai.LLMPipeline(TARGET, "CPU", **more, **PRECISION)
    if kind == "draft":
        with suppress(RuntimeError):  # 2026.4.1: the first sampled text with a draft model fails
            made.generate("warm up", do_sample=True, max_new_tokens=LENGTH)
    return made


def generate(kind: str, prompt: Sequence[int], seed: int, **options: int) -> list[int]:
    config = genai.GenerationConfig(
        max_new_tokens=LENGTH, ignore_eos=True, do_sample=True, temperature=1.0, top_p=1.0
    )
    config.top_k = 2**63 - 1  # its way of saying all tokens
    config.rng_seed = seed
    for name, value in options.items():
        setattr(config, name, value)
    ids = openvino.Tensor(np.array([list(prompt)], dtype=np.int64))
    return list(pipeline(kind).generate(ids, config).tokens[0])


def plain(prompt: Sequence[int], seed: int) -> list[int]:
    return generate("plain", prompt, seed)


def prompt_lookup(prompt: Sequence[int], seed: int) -> list[int]:
    return generate("lookup", prompt, seed, num_assistant_tokens=5, max_ngram_size=3)


def draft_model(prompt: Sequence[int], seed: int) -> list[int]:
    return generate("draft", prompt, seed, num_assistant_tokens=4)
