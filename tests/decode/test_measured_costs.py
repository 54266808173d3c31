"""The table of costs that is measured when a decoder is made: on a GPU, whose passes return before they are over, and what
reading a prompt takes a head, told from what its first round takes anyway."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.records import Seconds
from draftproof.decode import measured_costs
from draftproof.drafters.protocol import Wants

LAWS = [[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]]


class OnGPU(TableModel):
    """A table that says it is on a GPU."""

    device = torch.device("cuda", 0)


def test_passes_on_a_gpu_are_waited_for_while_costs_are_measured_and_not_in_decoding(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    target, draft = OnGPU(LAWS), OnGPU(LAWS)
    made = SpeculativeDecoder(
        draft, target, speculative_config={"adaptive": "survival", "rule": "match", "num_speculative_tokens": 2}
    )
    assert set(waited) == {OnGPU.device}
    assert len(waited) >= 5 + 2 * 5, "a pass for every token decoded plainly, and more for those drafted and verified"
    before = len(waited)
    assert len(made.generate([0, 1], SamplingParams(max_tokens=8, seed=0)).token_ids) == 8
    assert len(waited) == before


STEP, FIXED, OPENING, READING, TOKEN = 0.05, 0.1, 7.0, 0.002, 1.0


class Timed:
    """A decoder whose rounds take known times: a head's first one OPENING and READING for each token of the prompt."""

    def __init__(self, drafter, target, speculative_config=None):
        self.drafter, self.target, self.plain = drafter, target, self
        self._length = (speculative_config or {}).get("num_speculative_tokens", 0)

    def generate(self, prompt, params):
        rounds = [SimpleNamespace(seconds=Seconds(), reads_prompt=True, draft_tokens=())]
        for number in range(4):
            work = FIXED + STEP * self._length + (number == 0) * (OPENING + READING * len(prompt)) if self._length else 0.0
            seconds = Seconds(draft=work, verify=TOKEN)
            rounds.append(SimpleNamespace(seconds=seconds, reads_prompt=False, draft_tokens=(0,) * self._length))
        return SimpleNamespace(rounds=rounds)


def test_reading_is_told_from_what_a_first_round_takes_anyway():
    drafter = SimpleNamespace(name="head", wants=Wants(hidden=(1,)), trees=False, model=None)
    decoder = Timed(drafter, SimpleNamespace(max_length=2048, vocab_size=10))
    found = measured_costs._outside(decoder, drafter)
    assert found["read"] == pytest.approx(READING)
    assert found["draft"] == pytest.approx(STEP)
    assert found["fixed"] == pytest.approx(FIXED)
