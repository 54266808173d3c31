"""Rounding of real passes is no fault: bf16, a quantised target, passes over several tokens; scored
in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.audit.black_box.copies import LocalCopy
from draftproof.audit.black_box.run import Plan, audit_black_box
from draftproof.audit.engines.callables import CallableEngine
from draftproof.models.hf import HFModel
from tiny import llama

PARAMS = SamplingParams(max_tokens=24, seed=0, temperature=2.0)
PROMPTS = [(1, 2, 3), (9, 8)]
PLAN = Plan(num_texts=16, wanted=0.35)


def quantised(bits: int = 5):
    """Weights rounded to a few levels a row, as weight-only quantisation does."""
    model = llama()
    with torch.no_grad():
        for weight in (one for name, one in model.named_parameters() if "proj" in name):
            step = weight.abs().amax(dim=1, keepdim=True) / 2 ** (bits - 1)
            weight.copy_((weight / step).round() * step)
    return model


def engine(model, *, drafts: bool) -> CallableEngine:
    draft = HFModel(llama(seed=1, num_hidden_layers=1)) if drafts else None
    decoder = SpeculativeDecoder(
        draft, HFModel(model), speculative_config={"num_speculative_tokens": 4} if drafts else None
    )
    return CallableEngine(
        lambda prompt, seed: decoder.generate(prompt, replace(PARAMS, seed=seed)).token_ids,
        "drafted" if drafts else "plain",
    )


@pytest.mark.parametrize(
    "made", [lambda: llama(torch.bfloat16), quantised], ids=["bf16", "quantised"]
)
def test_a_coarse_engine_is_exact_beside_its_own_plain_texts(made):
    """384 tokens each; false alarm 1e-3. Its drafted passes are five tokens wide, its plain ones
    one."""
    copy = LocalCopy(
        HFModel(llama(torch.float64)), PARAMS, HFModel(llama(seed=1, num_hidden_layers=1))
    )
    found = audit_black_box(
        engine(made(), drafts=True),
        PROMPTS,
        PARAMS,
        copy=copy,
        control=engine(made(), drafts=False),
        plan=PLAN,
    )
    assert found.verdict.outcome == "exact"
    offset, half = found.rounding
    assert half < 0.4 and abs(offset) < 0.5


def test_bf16_alone_is_too_small_a_fault_to_be_one():
    copy = LocalCopy(HFModel(llama(torch.float64)), PARAMS)
    found = audit_black_box(
        engine(llama(torch.bfloat16), drafts=True), PROMPTS, PARAMS, copy=copy, plan=PLAN
    )
    assert found.verdict.outcome == "exact"
    assert any(note.startswith("no control") for note in found.notes)
