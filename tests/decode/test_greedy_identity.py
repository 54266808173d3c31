"""Greedy text equals transformers' own plain greedy, token for token: any drafter, any length, any
prompt length.

Random tiny models have wide gaps between logits, so a difference is a fault of cache, position or
mask, not rounding."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from tiny import FAMILIES, llama

NEW_TOKENS = 40
LENGTHS = (1, 2, 3, 5, 8)
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@cache
def target(family: str, dtype: str):
    return FAMILIES[family](DTYPES[dtype], seed=0)


@cache
def noisy_copy(family: str, dtype: str):
    """The target with its weights disturbed: often right, often wrong."""
    module = FAMILIES[family](DTYPES[dtype], seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.02 * noise.to(parameter.dtype))
    return module


@cache
def stranger(dtype: str):
    """One layer, other weights: mostly wrong."""
    return llama(DTYPES[dtype], seed=7, num_hidden_layers=1)


def decoder(drafter: str, family: str, dtype: str, length: int) -> SpeculativeDecoder:
    config = {"num_speculative_tokens": length}
    if drafter == "ngram":
        return SpeculativeDecoder(
            None, target(family, dtype), speculative_config={"method": "ngram", **config}
        )
    drafts = {
        "same": target,
        "noisy": noisy_copy,
        "stranger": lambda family, dtype: stranger(dtype),
    }
    return SpeculativeDecoder(
        drafts[drafter](family, dtype), target(family, dtype), speculative_config=config
    )


@cache
def reference(family: str, dtype: str, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """What transformers generates by itself."""
    module = target(family, dtype)
    room = getattr(module.config, "n_positions", 10_000) - len(prompt)
    ids = torch.tensor([prompt])
    out = module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=min(NEW_TOKENS, room),
        pad_token_id=0,
    )
    return tuple(out[0, len(prompt) :].tolist())


def prompt_of(size: int) -> tuple[int, ...]:
    return tuple((7 * i + 3) % 64 for i in range(size))


def check(drafter: str, family: str, dtype: str, length: int, size: int) -> None:
    prompt = prompt_of(size)
    result = decoder(drafter, family, dtype, length).generate(
        list(prompt), SamplingParams(temperature=0, max_tokens=NEW_TOKENS)
    )
    assert result.token_ids == reference(family, dtype, prompt)


@pytest.mark.parametrize("size", range(1, 18))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("drafter", ["ngram", "same", "noisy", "stranger"])
def test_llama_full_product(drafter, dtype, size):
    for length in LENGTHS:
        check(drafter, "llama", dtype, length, size)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gpt2"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("drafter", ["ngram", "same", "noisy"])
def test_other_families(drafter, dtype, family):
    for length, size in ((1, 1), (2, 5), (3, 17), (8, 3)):
        check(drafter, family, dtype, length, size)


def test_draft_equal_to_target_accepts_everything():
    result = decoder("same", "llama", "float64", 4).generate(
        [1, 2, 3], SamplingParams(temperature=0, max_tokens=40)
    )
    assert result.stats.num_accepted_tokens == result.stats.num_draft_tokens
    assert result.stats.tokens_per_round == 5.0


def test_a_mostly_wrong_drafter_is_mostly_rejected():
    """So the rejection branch really runs in the product above."""
    result = decoder("stranger", "llama", "float64", 4).generate(
        [1, 2, 3], SamplingParams(temperature=0, max_tokens=40)
    )
    assert result.stats.draft_acceptance_rate < 0.3
