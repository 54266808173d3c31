"""The table of costs that is measured when a decoder is made: on a GPU, whose passes return before they are over."""

from __future__ import annotations

import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel

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
