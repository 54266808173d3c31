"""transformers' own assisted generation and prompt lookup under the white-box audit."""

from __future__ import annotations

import copy

import pytest
import torch

from draftproof import SamplingParams
from draftproof.audit.engines.transformers_assisted import TransformersEngine
from draftproof.audit.white_box.run import audit_white_box
from draftproof.core.rules import RULES
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from tiny import llama

LEVEL = 1e-6


@pytest.fixture(scope="module")
def pair():
    """A random target over 300 tokens, and a copy of it with noise in its weights, which drafts."""
    target = llama(vocab_size=300)
    draft = copy.deepcopy(target)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in draft.parameters():
            weight.add_(0.03 * torch.randn_like(weight))
    return HFModel(target), HFModel(draft)


PROMPTS = [[index, index + 1, index + 2, index, index + 1] for index in range(6)]


def params(**changes):
    return SamplingParams(**{"max_tokens": 40, "seed": 5} | changes)


@pytest.mark.parametrize(
    "given",
    [{}, {"temperature": 0.7, "top_k": 30}, {"repetition_penalty": 1.3, "temperature": 0.5}],
)
def test_assisted_generation_is_exact(pair, given):
    found = audit_white_box(
        TransformersEngine(*pair, 4), pair[0], PROMPTS, params(**given), level=LEVEL
    )
    assert found.verdict.outcome != "not exact", found.verdict
    battery = found.reading.battery
    assert (
        battery.num_tokens == 40 * len(PROMPTS)
        and battery.drafts.bets.n > 200
        and battery.acceptance.accepted > 20
    )


def test_prompt_lookup_is_exact(pair):
    found = audit_white_box(
        TransformersEngine(pair[0], None, 3), pair[0], PROMPTS, params(temperature=0.4), level=LEVEL
    )
    assert found.verdict.outcome != "not exact", found.verdict
    assert found.claimed == "match" and found.reading.battery.acceptance.bets.n > 5


def test_rounds_are_what_generate_did(pair):
    """Contexts follow one another, drafts have their laws, and the user's models are left as they
    were."""
    target, draft = pair
    before = draft.module.generation_config.to_dict()
    rounds = list(TransformersEngine(target, draft, 4).rounds(PROMPTS[0], params()))
    context = tuple(PROMPTS[0])
    for seen in rounds:
        assert seen.context == context and seen.fault is None
        assert len(seen.draft.laws) == len(seen.draft.tokens) <= 4
        context = (*context, *seen.tokens)
    assert len(context) == len(PROMPTS[0]) + 40
    assert draft.module.generation_config.to_dict() == before and "generate" not in vars(
        draft.module
    )
    assert not target.module._forward_pre_hooks


def test_another_exact_rule_than_the_claimed_one_is_no_fault(pair):
    """The same rounds, said to be sample and match: too many drafts are accepted for that, and
    `token` explains them."""
    engine = TransformersEngine(*pair, 4)
    engine.rule = RULES["match"]
    found = audit_white_box(engine, pair[0], PROMPTS, params(), level=LEVEL)
    assert found.verdict.outcome != "not exact" and found.reading.rule == "token"
    assert "explains the rounds, not 'match' as claimed" in found.notes[0]


def test_what_it_cannot_honour_is_refused(pair):
    with pytest.raises(UsageError, match="allowed: 1 or more"):
        TransformersEngine(*pair, 0)
    with pytest.raises(UsageError, match="presence_penalty"):
        list(TransformersEngine(*pair, 4).rounds(PROMPTS[0], params(presence_penalty=0.5)))
