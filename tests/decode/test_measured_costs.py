"""The table of costs that is measured before a decoder's first text, not when it is made: on a GPU,
whose passes return before they are over, and what reading a prompt takes a head, told from what its
first round takes anyway."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.records import Seconds
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode import measured_costs
from draftproof.drafters.eagle import Eagle
from random_heads import random_head

LAWS = [[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]]


class OnGPU(TableModel):
    """A table that says it is on a GPU, and counts its passes."""

    device = torch.device("cuda", 0)
    passes = 0

    def extend_many(self, steps):
        self.passes += 1
        return super().extend_many(steps)


def test_passes_on_a_gpu_are_waited_for_while_costs_are_measured_and_not_in_decoding(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    target, draft = OnGPU(LAWS), OnGPU(LAWS)
    made = SpeculativeDecoder(
        draft,
        target,
        speculative_config={"adaptive": "survival", "rule": "match", "num_speculative_tokens": 2},
    )
    assert not waited and not target.passes, "making a decoder runs nothing"
    made.measure_costs()
    assert set(waited) == {OnGPU.device}
    assert len(waited) >= 5 + 2 * 5, (
        "a pass for every token decoded plainly, and more for those drafted and verified"
    )
    before = len(waited)
    assert set(made.config.costs) == {"draft_model"}, "measured once"
    assert len(made.generate([0, 1], SamplingParams(max_tokens=8, seed=0)).token_ids) == 8
    assert len(waited) == before


STEP, FIXED, OPENING, READING, TOKEN = 0.05, 0.1, 7.0, 0.002, 1.0


def known_rounds(target, speculation, size, max_tokens):
    """Rounds that take known times: a head's first one OPENING and READING for each token of the
    prompt."""
    length = 0 if speculation is None else speculation.config.num_speculative_tokens
    rounds = []
    for number in range(4):
        work = FIXED + STEP * length + (number == 0) * (OPENING + READING * size) if length else 0.0
        rounds.append(
            SimpleNamespace(seconds=Seconds(draft=work, verify=TOKEN), draft_tokens=(0,) * length)
        )
    return rounds


def test_reading_is_told_from_what_a_first_round_takes_anyway(monkeypatch):
    monkeypatch.setattr(measured_costs, "_rounds", known_rounds)
    drafter = Eagle(random_head("eagle"))
    target = SimpleNamespace(max_length=2048, vocab_size=10)
    found = measured_costs.with_rounds(RoundCosts(), target, drafter)
    assert (found.read, found.draft, found.fixed) == pytest.approx((READING, STEP, FIXED))
