"""A head that begins as the target's last layer: what is copied, where it lies, and when it is refused."""

from __future__ import annotations

import pytest
import torch

from draftproof.errors import UsageError
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.target import target_view
from draftproof.models.hf import HFModel
from draftproof.train.beginning import begin_as_last_layer
from draftproof.train.run import Recipe, fresh_head
from draftproof.train.store import Text
from tiny import VOCAB, llama


def test_it_copies_the_last_layer_and_the_norm():
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    head = fresh_head(
        Recipe("eagle3", draft_vocab_size=VOCAB, hidden_layers=(1, 3, 2), begin="target"),
        target_view(target),
        [Text("0" * 16, "a", tuple(range(12)), 4)],
        0,
        target.module,
    )
    last, layer = target.module.model.layers[-1], head.layers[0]
    assert torch.equal(layer.mlp.down_proj.weight, last.mlp.down_proj.weight)
    assert torch.equal(layer.self_attn.k_proj.weight[:, 32:], last.self_attn.k_proj.weight)
    assert torch.equal(layer.hidden_norm.weight, last.input_layernorm.weight)
    assert torch.equal(head.norm.weight, target.module.model.norm.weight)
    states = {layer: torch.randn(5, 32) for layer in (1, 2, 3)}
    fused = head.fuse(states)
    assert torch.nn.functional.cosine_similarity(fused, states[3]).min() > 0.9, "the highest layer, wherever it stands"


def test_another_shape_is_refused():
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    head = Eagle3.of(target_view(target), range(VOCAB), intermediate_size=48)
    with pytest.raises(UsageError, match="begin at random instead"):
        begin_as_last_layer(head, target.module)
    with pytest.raises(UsageError, match="begin at random instead"):
        begin_as_last_layer(head, None)
