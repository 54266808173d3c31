"""What a draft model gives is moved once to where its target is. Recorded by a device that only pretends: this suite has one.

On two real devices the same lines run; that has not been tried here."""

from __future__ import annotations

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.models.hf import HFModel
from draftproof.models.protocol import Step, extend
from tiny import llama


@pytest.fixture
def moves(monkeypatch):
    """Every `Tensor.to` towards the pretended device, which leaves the numbers where they are."""
    seen = []
    original = torch.Tensor.to

    def to(tensor, *args, **kwargs):
        if args and args[0] == torch.device("cuda", 7):
            seen.append(tuple(tensor.shape))
            return tensor.clone()
        return original(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", to)
    return seen


def test_logits_and_hidden_states_move_where_they_leave_the_model(moves):
    model = HFModel(llama())
    model.deliver_to("cuda:7")
    assert moves == []
    output = extend(Step(model.open(), [1, 2, 3], rows=[2], hidden=(1,)))
    assert moves == [(1, 64), (3, 32)]
    assert model.device == torch.device("cpu"), "the model itself stays"
    output.logits[0, 0] = 1.0  # still writable


def test_a_pair_on_two_devices_moves_the_drafts_logits_only(moves):
    target, draft = HFModel(llama(), name="target"), HFModel(llama(seed=1), name="draft")
    reference = SpeculativeDecoder(HFModel(llama(seed=1)), target, speculative_config={"num_speculative_tokens": 3})
    params = SamplingParams(temperature=1.0, seed=4, max_tokens=12, ignore_eos=True)
    expected = reference.generate([1, 2, 3], params).token_ids
    assert moves == []
    target.device = torch.device("cuda", 7)
    decoder = SpeculativeDecoder(draft, target, speculative_config={"num_speculative_tokens": 3})
    target.device = torch.device("cpu")
    assert draft.output_device == torch.device("cuda", 7) and target.output_device == torch.device("cpu")
    assert decoder.generate([1, 2, 3], params).token_ids == expected
    assert moves and set(moves) == {(1, 64)}, "one row a draft step, nothing of the target's"
