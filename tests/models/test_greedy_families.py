"""Greedy text equals transformers' own plain greedy on every kind of layer: as target, as draft, as
both.

Classes of transformers#46629 and mlx-lm#1914 (wrong text once a sliding window is full) and
llama.cpp#19267 (rejected drafts that stay in a recurrent state).

Every kind of layer as a target runs with the suite, and a few as draft and as both; the rest of the
product takes minutes: `pytest tests/models/test_greedy_families.py -m proof`."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import pytest
import torch

from cache_families import FAMILIES, RARE, WINDOW
from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.costs.round_costs import RoundCosts
from draftproof.drafters.registry import METHODS
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from tiny import VOCAB, llama

NEW = 24
COSTS = RoundCosts(verify=((1, 1.0), (9, 1.3)), draft=0.05).as_dict()
PROMPTS = {"short": [3, 1, 4, 1, 5], "long": [(5 * i + 2) % VOCAB for i in range(WINDOW + 12)]}
ATTENTION = [("gemma3", "eager"), ("mistral", "eager"), ("llama4", "eager"), ("jamba", "eager")]
QUICK = ("llama", "gpt2", "mistral", "gemma3", "llama4")
EVERY = FAMILIES | RARE
TARGETS = [*FAMILIES, *(pytest.param(name, marks=pytest.mark.proof) for name in RARE)]
PRODUCT = [name if name in QUICK else pytest.param(name, marks=pytest.mark.proof) for name in EVERY]


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@cache
def module_of(name: str):
    return EVERY[name].make(EVERY[name].dtype)


@cache
def model_of(name: str) -> HFModel:
    return HFModel(module_of(name), name=name)


@cache
def near(name: str) -> HFModel:
    """The family's model with noise on its weights: most of its drafts are wrong somewhere, few are
    wrong at once."""
    module = deepcopy(module_of(name))
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in module.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return HFModel(module, name=f"{name} with noise")


@cache
def stranger() -> HFModel:
    return HFModel(llama(torch.float64, seed=5), name="stranger")


@cache
def plain(name: str, prompt: str) -> list[int]:
    """What transformers generates by itself, greedily."""
    module, ids = module_of(name), torch.tensor([PROMPTS[prompt]])
    limit = min(
        NEW, (getattr(module.config, "max_position_embeddings", None) or 999) - ids.shape[1]
    )
    text = module.generate(
        ids, max_new_tokens=limit, do_sample=False, attention_mask=torch.ones_like(ids)
    )
    return text[0, ids.shape[1] :].tolist()


def speculative(target: HFModel, draft, prompt: str, **config) -> tuple[list[int], object]:
    decoder = SpeculativeDecoder(draft, target, speculative_config=config or None)
    result = decoder.generate(
        PROMPTS[prompt], SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)
    )
    return list(result.token_ids), result.stats


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("name", TARGETS)
def test_the_family_as_target(name, prompt):
    expected = plain(name, prompt)
    looked_up, _ = speculative(
        model_of(name), None, prompt, method="ngram", num_speculative_tokens=4
    )
    assert looked_up == expected
    drafted, _ = speculative(model_of(name), stranger(), prompt, num_speculative_tokens=4)
    assert drafted == expected


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("name", PRODUCT)
def test_the_family_as_draft_and_as_both(name, prompt):
    as_draft, _ = speculative(model_of("llama"), model_of(name), prompt, num_speculative_tokens=4)
    assert as_draft == plain("llama", prompt)
    as_both, stats = speculative(model_of(name), near(name), prompt, num_speculative_tokens=4)
    assert as_both == plain(name, prompt)
    assert stats.num_draft_tokens > 0
    itself, stats = speculative(model_of(name), model_of(name), prompt, num_speculative_tokens=4)
    assert itself == plain(name, prompt)
    assert stats.draft_acceptance_rate == 1


@pytest.mark.proof
@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("name", EVERY)
def test_trees_where_they_can_be_read_and_chains_elsewhere(name, prompt):
    tokens, stats = speculative(
        model_of(name), near(name), prompt, num_speculative_tokens=2, tree="2,2"
    )
    assert tokens == plain(name, prompt)
    said = " ".join(stats.notes)
    assert ("chains of 2 are drafted instead" in said) == (not EVERY[name].trees)
    assert ("drafts cannot make it faster" in said) == (name in ("mamba", "jamba", "zamba"))


@pytest.mark.parametrize("name", PRODUCT)
def test_every_method_that_needs_no_model(name):
    """Whatever the registry lists, on every kind of cache; lookahead alone may say that it needs a
    target that reads trees."""
    for method, spec in METHODS.items():
        if (
            spec.model not in (None, "drafters")
            or spec.requires
            or method in ("none", "early_exit", "layer_skip")
        ):
            continue
        try:
            decoder = SpeculativeDecoder(
                None, model_of(name), speculative_config={"method": method, "costs": COSTS}
            )
        except UsageError as error:
            assert method == "lookahead" and "reads chains only" in str(error)
            continue
        for prompt in ("short", "long"):
            result = decoder.generate(
                PROMPTS[prompt], SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)
            )
            assert list(result.token_ids) == plain(name, prompt), method


@pytest.mark.proof
@pytest.mark.parametrize(("name", "attention"), ATTENTION)
def test_eager_attention_reads_the_same(name, attention):
    """`eager` reads the masks it is given, one for each type of layer, where `sdpa` takes them from
    the pass."""
    model = HFModel(FAMILIES[name].make(torch.float64, attn_implementation=attention), name=name)
    tokens, _ = speculative(model, near(name), "long", num_speculative_tokens=4)
    assert tokens == plain(name, "long")


@pytest.mark.proof
@pytest.mark.parametrize("name", ["mistral", "gemma3", "llama4", "qwen3_next", "jamba"])
def test_sampled_text_for_a_seed_is_plain_decodings(name):
    """With `match`, drafts change nothing: not through a cache that was rolled back either."""
    decoder = SpeculativeDecoder(
        near(name),
        model_of(name),
        speculative_config={"num_speculative_tokens": 3, "rule": "match"},
    )
    params = SamplingParams(temperature=1.0, seed=11, max_tokens=NEW, ignore_eos=True)
    assert (
        decoder.generate(PROMPTS["long"], params).token_ids
        == decoder.plain.generate(PROMPTS["long"], params).token_ids
    )
