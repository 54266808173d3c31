"""Recorded rounds of our own decoder: exact under every rule, and every planted fault seen and
named.

Sizes are fixed. At level 1e-6 over all tests a cell of exact rounds fails once in a million; a
planted fault is so large at these sizes that missing it is less likely still.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.engines.ours import OurEngine
from draftproof.audit.engines.rounds import RecordedRound
from draftproof.audit.white_box.planted import FAULTS, PlantedEngine
from draftproof.audit.white_box.run import audit_white_box
from draftproof.core.records import Draft
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from tiny import llama

VOCAB, STATES, LEVEL = 600, 16, 1e-6
PROMPTS = [[0, 1, 0]] * 12


def softmax(row):
    mass = np.exp(row - row.max())
    return mass / mass.sum()


@pytest.fixture(scope="module")
def pair():
    """Two Markov models over 600 tokens that agree on about two thirds."""
    rng = np.random.default_rng(5)
    logits = 1.5 * rng.normal(size=(STATES, VOCAB))
    target = [softmax(row) for row in logits]
    draft = [softmax(row) for row in logits + 0.9 * rng.normal(size=(STATES, VOCAB))]
    models = [
        TableModel(lambda prefix, laws=laws: laws[prefix[-1] % STATES], vocab_size=VOCAB)
        for laws in (target, draft)
    ]
    return models[0], models[1]


@pytest.fixture(scope="module")
def narrow():
    """The same over 12 tokens, where a text repeats itself: for penalties, which look back."""
    rng = np.random.default_rng(6)
    logits = rng.normal(size=(12, 12))
    models = [
        TableModel(lambda prefix, laws=laws: laws[prefix[-1]], vocab_size=12)
        for laws in (
            [softmax(row) for row in logits],
            [softmax(row) for row in logits + 0.5 * rng.normal(size=(12, 12))],
        )
    ]
    return models[0], models[1]


def params(**changes):
    return SamplingParams(**{"max_tokens": 50, "seed": 3} | changes)


DRAFTING = [
    {"rule": "token"},
    {"rule": "block"},
    {"rule": "match"},
    {"rule": "gumbel"},
    {"rule": "rrs", "tree": "2,1"},
    {"rule": "traversal", "tree": "2,1"},
    {"rule": "k_seq", "tree": "2,1", "tree_selection": "iid"},
    {"rule": "greedy_k", "tree": "2,1", "tree_selection": "top_k_plus_one"},
]


@pytest.mark.parametrize("drafting", DRAFTING, ids=lambda one: one["rule"])
def test_our_rounds_are_exact_under_every_rule(pair, drafting):
    target, draft = pair
    length = {} if "tree" in drafting else {"num_speculative_tokens": 3}
    decoder = SpeculativeDecoder(
        draft, target, speculative_config={"method": "draft_model", **drafting, **length}
    )
    found = audit_white_box(OurEngine(decoder), target, PROMPTS, params(), level=LEVEL)
    assert found.verdict.outcome in ("exact", "cannot tell")
    assert found.verdict.detectable < 0.35 and found.reading.battery.num_tokens == 50 * len(PROMPTS)
    assert found.reading.rule == drafting["rule"] and not found.notes


@pytest.mark.parametrize(
    "given", [{"top_k": 20}, {"temperature": 0.6, "top_p": 0.9}, {"repetition_penalty": 1.3}]
)
def test_parameters_are_part_of_the_target(pair, given):
    target, draft = pair
    config = {"method": "draft_model", "rule": "token", "num_speculative_tokens": 3}
    decoder = SpeculativeDecoder(draft, target, speculative_config=config)
    found = audit_white_box(OurEngine(decoder), target, PROMPTS, params(**given), level=LEVEL)
    assert found.verdict.outcome != "not exact"


def test_fixed_drafts_are_held_against_the_one_hot_law(narrow):
    target, _ = narrow
    decoder = SpeculativeDecoder(
        None, target, speculative_config={"method": "ngram", "num_speculative_tokens": 4}
    )
    found = audit_white_box(OurEngine(decoder), target, PROMPTS, params(), level=LEVEL)
    assert found.verdict.outcome != "not exact" and found.reading.battery.acceptance.accepted > 20


@pytest.mark.parametrize("rule", ["token", "block"])
def test_rounding_is_measured_and_is_no_fault(rule):
    """A model in bfloat16, whose passes over one and over several tokens differ by hundredths of a
    nat."""
    target, draft = (
        HFModel(llama(torch.bfloat16, vocab_size=300, seed=0, **layers))
        for layers in ({}, {"num_hidden_layers": 1})
    )
    config = {"method": "draft_model", "rule": rule, "num_speculative_tokens": 3}
    decoder = SpeculativeDecoder(draft, target, speculative_config=config)
    found = audit_white_box(
        OurEngine(decoder), target, PROMPTS[:8], params(max_tokens=30), level=LEVEL
    )
    assert found.rounding > 1e-3 and found.verdict.outcome != "not exact", found.verdict


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_seen_and_named(name, pair, narrow):
    fault = FAULTS[name]
    stale = name == "stale processor"
    target, draft = narrow if stale else pair
    config = {"method": "draft_model", "rule": "token", "num_speculative_tokens": 4 if stale else 3}
    decoder = SpeculativeDecoder(draft, target, speculative_config=config)
    given = {"repetition_penalty": 3.0, "temperature": 1.0} if stale else {}
    few = name == "bonus at another temperature"
    found = audit_white_box(
        PlantedEngine(decoder, fault),
        target,
        PROMPTS,
        params(**given),
        level=1e-3 if few else LEVEL,
    )
    assert found.verdict.outcome == "not exact" and found.verdict.exit_code == 1
    assert found.verdict.cause == fault.cause
    assert found.verdict.example is not None


class Recorded:
    """Rounds made by hand, under a claim."""

    name = "recorded by hand"

    def __init__(self, decoder, change):
        self._engine, self._change = OurEngine(decoder), change
        self.rule = self._engine.rule

    def rounds(self, prompt, given):
        yield from map(self._change, self._engine.rounds(prompt, given))


def test_sample_and_match_under_another_claim_is_exact_and_its_acceptance_is_told(pair):
    target, draft = pair
    config = {"method": "draft_model", "num_speculative_tokens": 3}
    matching = SpeculativeDecoder(draft, target, speculative_config=config | {"rule": "match"})
    claiming = SpeculativeDecoder(draft, target, speculative_config=config | {"rule": "token"})
    engine = Recorded(matching, lambda seen: seen)
    engine.rule = claiming.rule
    found = audit_white_box(engine, target, PROMPTS, params(), level=LEVEL)
    assert found.verdict.outcome != "not exact" and found.reading.rule == "match"
    assert "explains the rounds, not 'token' as claimed" in found.notes[0]


def test_a_missing_bonus_is_exact_and_told(pair):
    target, draft = pair
    config = {"method": "draft_model", "rule": "token", "num_speculative_tokens": 1}
    decoder = SpeculativeDecoder(draft, target, speculative_config=config)

    def without_bonus(seen: RecordedRound) -> RecordedRound:
        kept = seen.tokens[: len(seen.path)] if seen.final_origin == "bonus" else seen.tokens
        return RecordedRound(seen.prompt, seen.context, seen.draft, seen.path, kept, seen.cut)

    found = audit_white_box(
        Recorded(decoder, without_bonus), target, PROMPTS, params(), level=LEVEL
    )
    assert found.verdict.outcome != "not exact"
    assert "gave no bonus token: exact, but slower" in found.notes[0]


def test_a_round_that_emits_other_tokens_than_it_accepted_is_a_fault():
    seen = RecordedRound((0,), (0,), Draft((1, 2), (-1, 0)), (0,), (2, 3))
    assert seen.fault == "the accepted drafts are [1], but the round emitted [2, 3]"
    assert RecordedRound((0,), (0,), Draft((1, 2), (-1, 0)), (0,), (1, 3)).fault is None


def test_greedy_text_and_plain_decoders_are_refused(pair):
    target, draft = pair
    decoder = SpeculativeDecoder(draft, target, speculative_config={"method": "draft_model"})
    with pytest.raises(UsageError, match="nothing is drawn"):
        audit_white_box(OurEngine(decoder), target, PROMPTS, params(temperature=0.0))
    with pytest.raises(UsageError, match="drafts nothing"):
        OurEngine(SpeculativeDecoder(None, target, speculative_config={"method": "none"}))
    typical = SpeculativeDecoder(
        draft, target, speculative_config={"method": "draft_model", "rule": "typical"}
    )
    with pytest.raises(UsageError, match="by design"):
        OurEngine(typical)
    with pytest.raises(UsageError, match="gave no rounds"):
        audit_white_box(OurEngine(decoder), target, [], params())


def test_few_tokens_are_no_verdict(pair):
    target, draft = pair
    decoder = SpeculativeDecoder(
        draft, target, speculative_config={"method": "draft_model", "rule": "token"}
    )
    found = audit_white_box(OurEngine(decoder), target, [[0, 1]], params(max_tokens=20))
    assert found.verdict.outcome == "cannot tell" and found.verdict.more_tokens > 100
