"""Rule `gumbel`: the text for a seed is plain Gumbel decoding's, token for token, whatever drafts;
and it accepts more than `match`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.bounds import gumbel_acceptance
from draftproof.core.rules import RULES
from draftproof.core.tree import TreeShape
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.ngram import NGram
from draftproof.models.hf import HFModel
from tiny import llama

PROMPT = [5, 9, 12, 5]
LENGTH = 300


@pytest.fixture(scope="module")
def models():
    target = llama(torch.float64, max_position_embeddings=512)
    good = llama(torch.float64, max_position_embeddings=512)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in good.parameters():
            weight.add_(0.02 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    junk = llama(torch.float64, seed=5, max_position_embeddings=512)
    return {
        name: HFModel(module)
        for name, module in (("target", target), ("good", good), ("junk", junk))
    }


def tables():
    """The same cast by hand: laws over 48 tokens that read the last three; the good draft is the
    target, a little blurred."""

    def peaked(seed):
        def law(prefix):
            mass = np.exp(2.5 * np.random.default_rng([seed, *prefix[-3:]]).normal(size=48))
            return mass / mass.sum()

        return law

    target, junk = peaked(1), peaked(2)

    def good(prefix):
        return 0.85 * target(prefix) + 0.15 * junk(prefix)

    laws = {"target": target, "good": good, "junk": junk}
    return {name: TableModel(law, vocab_size=48) for name, law in laws.items()}


def drafters(models):
    return {
        "sampled": (DraftModel(models["good"]), 5),
        "greedy": (DraftModel(models["good"], "greedy"), 3),
        "junk": (DraftModel(models["junk"]), 2),
        "ngram": (NGram(3, 1), 4),
        "tree": (
            DraftModel(
                models["good"], tree=TreeShape.from_levels((2, 2)), selection="without_replacement"
            ),
            2,
        ),
    }


def check_every_drafter_gives_plain_gumbel_text(models, temperature, top_p):
    params = SamplingParams(temperature=temperature, top_p=top_p, max_tokens=LENGTH, seed=3)
    plain = None
    accepted = {}
    for name, (drafter, length) in drafters(models).items():
        made = SpeculativeDecoder(
            drafter,
            models["target"],
            speculative_config={"rule": "gumbel", "num_speculative_tokens": length},
        )
        plain = plain or made.plain.generate(PROMPT, params).token_ids
        result = made.generate(PROMPT, params)
        assert result.token_ids == plain, name
        accepted[name] = result.stats.num_accepted_tokens
    assert len(plain) == LENGTH
    assert accepted["sampled"] > 100
    assert accepted["tree"] > 100


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_text_is_plain_gumbel_decodings_whatever_drafts(temperature, top_p):
    check_every_drafter_gives_plain_gumbel_text(tables(), temperature, top_p)


def test_text_is_plain_gumbel_decodings_on_real_modules_too(models):
    """The same through caches, masks and positions; one setting, because parameters act on rows,
    not on modules."""
    check_every_drafter_gives_plain_gumbel_text(models, 1.0, 0.8)


def test_no_other_rule_shares_noise():
    """Under accept-iff-equal alone is it right that drafter and target draw by the same numbers."""
    assert {name for name, rule in RULES.items() if rule.coupled} == {"gumbel"}


def test_inverse_and_gumbel_draws_are_different_texts_of_one_law(models):
    params = SamplingParams(max_tokens=30, seed=3)
    texts = [
        SpeculativeDecoder(NGram(), models["target"], speculative_config={"rule": rule})
        .plain.generate(PROMPT, params)
        .token_ids
        for rule in ("match", "gumbel")
    ]
    assert texts[0] != texts[1]


def test_samples_and_seeds_differ(models):
    made = SpeculativeDecoder(
        DraftModel(models["good"]), models["target"], speculative_config={"rule": "gumbel"}
    )
    result = made.generate(PROMPT, SamplingParams(max_tokens=20, seed=3, n=4))
    other = made.generate(PROMPT, SamplingParams(max_tokens=20, seed=4, n=1))
    assert len({output.token_ids for output in (*result.outputs, *other.outputs)}) == 5


def test_sampled_drafts_are_accepted_as_the_formula_says_and_more_than_by_match():
    """Context-free laws, drafts of one: each round is one trial. Over 4,000 trials of fixed seeds;
    4.5 standard errors leave 7e-6."""
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.full(8, 0.6)), rng.dirichlet(np.full(8, 0.6))
    tv = 0.5 * np.abs(p - q).sum()
    target, draft = TableModel(np.tile(p, (8, 1))), TableModel(np.tile(q, (8, 1)))
    rates = {}
    for rule in ("gumbel", "match"):
        made = SpeculativeDecoder(
            DraftModel(draft),
            target,
            speculative_config={"rule": rule, "num_speculative_tokens": 1},
        )
        outputs = made.generate([0], SamplingParams(max_tokens=60, seed=0, n=150)).outputs
        drafts = sum(output.stats.num_drafts for output in outputs)
        assert drafts > 4_000
        rates[rule] = (sum(output.stats.num_accepted_tokens for output in outputs) / drafts, drafts)
    for rule, expected in (("gumbel", gumbel_acceptance(p, q)), ("match", float((p * q).sum()))):
        rate, trials = rates[rule]
        assert abs(rate - expected) <= 4.5 * np.sqrt(expected * (1 - expected) / trials)
    assert (1 - tv) / (1 + tv) <= gumbel_acceptance(p, q) <= 1 - tv
    assert rates["gumbel"][0] > rates["match"][0]


def test_at_temperature_zero_it_is_match(models):
    made = SpeculativeDecoder(
        DraftModel(models["good"]), models["target"], speculative_config={"rule": "gumbel"}
    )
    params = SamplingParams(temperature=0, max_tokens=20)
    assert made.rule_for(params) is RULES["match"]
    assert made.generate(PROMPT, params).token_ids == made.plain.generate(PROMPT, params).token_ids
