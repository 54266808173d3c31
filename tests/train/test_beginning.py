"""A head that begins as the target's last layer: what is copied, where it lies, and when it is
refused."""

from __future__ import annotations

import pytest
import torch

from draftproof.errors import UsageError
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.folder import save_head
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
    assert torch.nn.functional.cosine_similarity(fused, states[3]).min() > 0.9, (
        "the highest layer, wherever it stands"
    )


def test_another_shape_is_refused():
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    head = Eagle3.of(target_view(target), range(VOCAB), intermediate_size=48)
    with pytest.raises(UsageError, match="begin at random instead"):
        begin_as_last_layer(head, target.module)
    with pytest.raises(UsageError, match="begin at random instead"):
        begin_as_last_layer(head, None)


def test_a_head_gone_on_with_can_have_a_larger_draft_vocabulary(tmp_path):
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    view = target_view(target)
    texts = [Text("0" * 16, "a", (1, 40, 41, 41, 40, 50, 7, 7, 7), 1)]
    first = Eagle3.of(view, [3, 7, 40], hidden_layers=(1, 2, 3))
    with torch.no_grad():
        first.lm_head.weight.add_(1.0)
    save_head(tmp_path, first, view)
    more = fresh_head(Recipe("eagle3", draft_vocab_size=5, start=str(tmp_path)), view, texts, 0)
    assert more.draft_ids.tolist() == [3, 7, 40, 41, 50], (
        "what it has, then what the answers use most"
    )
    assert torch.equal(more.lm_head.weight[:3], first.lm_head.weight)
    assert torch.equal(more.lm_head.weight[3:], view.output_weight[[41, 50]])
    assert torch.equal(more.fc.weight, first.fc.weight) and torch.equal(
        more.layers[0].mlp.up_proj.weight, first.layers[0].mlp.up_proj.weight
    )
    assert all(weight.requires_grad for weight in more.parameters())
    features = torch.randn(2, 32)
    laws = [head.spread(head.logits(features)) for head in (first, more)]
    torch.testing.assert_close(laws[0][:, [3, 7, 40]], laws[1][:, [3, 7, 40]])
    assert laws[0][:, 41].isinf().all() and laws[1][:, 41].isfinite().all()
    assert fresh_head(Recipe("eagle3", start=str(tmp_path)), view, texts, 0).draft_ids.tolist() == [
        3,
        7,
        40,
    ]
    with pytest.raises(
        UsageError,
        match="draft_vocab_size is 2; the head that training begins with has 3, and keeps them",
    ):
        fresh_head(Recipe("eagle3", draft_vocab_size=2, start=str(tmp_path)), view, texts, 0)
