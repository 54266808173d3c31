"""transformers' own `generate` on the model of `draftproof pull`, as functions of prompt ids and a
seed.

    PYTHONPATH=benchmarks/audits draftproof audit --black-box transformers_texts:prompt_lookup

Nothing of draftproof's decoder is used. Temperature 1, no cut of the law, LENGTH tokens a text
whatever ends it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from draftproof.models.pull import DEFAULT_MODEL, pulled_folder

LENGTH = 48


@cache
def model() -> Any:
    loaded = AutoModelForCausalLM.from_pretrained(
        pulled_folder(DEFAULT_MODEL), dtype=torch.bfloat16
    )
    loaded.generation_config.eos_token_id = None
    return loaded


def generate(prompt: Sequence[int], seed: int, **options: Any) -> list[int]:
    torch.manual_seed(seed)
    ids = torch.tensor([list(prompt)])
    text = model().generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        temperature=1.0,
        max_new_tokens=LENGTH,
        **options,
    )
    return text[0, len(prompt) :].tolist()


def plain(prompt: Sequence[int], seed: int) -> list[int]:
    return generate(prompt, seed, top_k=0, top_p=1.0)


def prompt_lookup(prompt: Sequence[int], seed: int) -> list[int]:
    return generate(prompt, seed, top_k=0, top_p=1.0, prompt_lookup_num_tokens=10)


def as_it_comes(prompt: Sequence[int], seed: int) -> list[int]:
    """What `generate(do_sample=True)` does when nothing else is said: it takes the 50 likeliest
    tokens."""
    return generate(prompt, seed)
