"""Packed linear layers: the same products, the same names, hashes and texts; refused where they
would not be."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from draftproof.core.params import SamplingParams
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.errors import UsageError
from draftproof.heads.target import fingerprint, target_view
from draftproof.models import load, packed
from draftproof.models.hf import HFModel
from draftproof.models.packed import (
    PackedLinear,
    num_parameters,
    pack_linears,
    packed_layers,
    unpack_linears,
)
from draftproof.models.slices import early_exit, skipping
from draftproof.report.provenance import model_hash
from draftproof.train.distil import DraftRecipe, fresh_draft
from tiny import llama, word_tokenizer

pytestmark = pytest.mark.skipif(
    packed.why_not_packed(torch.float32, torch.device("cpu")) is not None,
    reason="this processor or torch packs no weights",
)


def both(**options):
    """A tiny model twice, the second packed."""
    plain = llama(**options)
    other = copy.deepcopy(plain)
    assert pack_linears(other, smallest=1) == 1 + 7 * plain.config.num_hidden_layers
    return plain, other


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(0,), (1,), (2,), (4,), (5,), (33,), (2, 3), (1, 8)])
def test_products_are_the_plain_layers(shape, bias):
    torch.manual_seed(0)
    plain = nn.Linear(96, 257, bias=bias)
    made = PackedLinear(plain, shared=False)
    rows = torch.randn(*shape, 96)
    with torch.inference_mode():
        torch.testing.assert_close(made(rows), plain(rows), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            made(rows[..., ::2].repeat_interleave(2, -1)),
            plain(rows[..., ::2].repeat_interleave(2, -1)),
        )
    assert torch.equal(made.weight, plain.weight)


def test_only_large_plain_float32_layers_are_packed():
    module = nn.ModuleDict({
        "large": nn.Linear(8, 8), "small": nn.Linear(4, 4), "bf16": nn.Linear(8, 8).bfloat16(),
        "own": nn.modules.linear.NonDynamicallyQuantizableLinear(8, 8),
    })  # fmt: skip
    module["same"] = module["large"]
    module["inner"] = nn.ModuleDict({"same": module["large"]})
    assert pack_linears(module, smallest=64) == 1
    assert packed_layers(module) == [module["large"]]
    assert module["inner"]["same"] is module["same"] is module["large"]


@pytest.mark.parametrize("tied", [False, True])
def test_nothing_that_reads_the_weights_sees_a_difference(tied):
    plain, other = both(tie_word_embeddings=tied)
    assert num_parameters(other) == sum(weight.numel() for weight in plain.parameters())
    theirs, ours = plain.state_dict(), other.state_dict()
    assert list(theirs) == list(ours)
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    assert fingerprint(other) == fingerprint(plain)
    assert model_hash(HFModel(other)) == model_hash(HFModel(plain))
    assert torch.equal(
        target_view(HFModel(other)).output_weight, target_view(HFModel(plain)).output_weight
    )


@pytest.mark.parametrize("tied", [False, True])
def test_unpacked_again_it_is_the_plain_model_and_can_be_trained(tied):
    plain, other = both(tie_word_embeddings=tied)
    again = unpack_linears(copy.deepcopy(other))
    assert not packed_layers(again)
    assert packed_layers(other)
    assert [name for name, _ in again.named_parameters()] == [
        name for name, _ in plain.named_parameters()
    ]
    again(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    assert all(weight.grad is not None for weight in again.parameters())


def test_a_draft_begun_from_packed_layers_can_be_trained():
    _, other = both(num_hidden_layers=3, tie_word_embeddings=True)
    draft = fresh_draft(
        HFModel(other, word_tokenizer(other.config.vocab_size)), DraftRecipe(num_layers=2)
    )
    assert not packed_layers(draft.module)
    assert all(weight.requires_grad for weight in draft.module.parameters())


def test_gradients_go_to_the_input():
    plain = nn.Linear(16, 8)
    rows, same = (torch.ones(3, 16, requires_grad=True) for _ in range(2))
    plain(rows).square().sum().backward()
    PackedLinear(plain, shared=False)(same).square().sum().backward()
    torch.testing.assert_close(same.grad, rows.grad)


def test_slices_share_the_packed_layers():
    plain, other = both(num_hidden_layers=3)
    for made in (lambda m: early_exit(HFModel(m), 2), lambda m: skipping(HFModel(m), [1], mlp=[0])):
        ids = torch.tensor([[1, 2, 3]])
        with torch.inference_mode():
            torch.testing.assert_close(
                made(other).module(input_ids=ids).logits, made(plain).module(input_ids=ids).logits
            )
    assert set(map(id, packed_layers(early_exit(HFModel(other), 2).module))) <= set(
        map(id, packed_layers(other))
    )


def test_texts_are_the_plain_models():
    plain, other = both(num_hidden_layers=2)
    prompt = [1, 2, 3, 1, 2, 3, 1, 2]
    config = {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_max": 2,
        "prompt_lookup_min": 1,
    }
    for params in (
        SamplingParams(temperature=0, max_tokens=24),
        SamplingParams(temperature=1.0, seed=3, max_tokens=24),
    ):
        texts = [
            SpeculativeDecoder(None, HFModel(m), speculative_config=config).generate(prompt, params)
            for m in (plain, other)
        ]
        assert texts[0].token_ids == texts[1].token_ids


def test_moving_packed_weights_is_refused():
    _, other = both()
    with pytest.raises(UsageError, match="load the model with pack_weights=False"):
        other.to(torch.bfloat16)
    other.to(torch.float32)


def test_loading_packs_what_is_large(tmp_path, monkeypatch):
    folder = tmp_path / "m"
    llama().save_pretrained(folder)
    assert not packed_layers(load.load_model(folder, device="cpu").module)
    monkeypatch.setattr(load, "pack_linears", lambda module: pack_linears(module, smallest=1))
    assert packed_layers(load.load_model(folder, device="cpu").module)
    assert packed_layers(load.load_model(folder, device="cpu", pack_weights=True).module)
    assert not packed_layers(load.load_model(folder, device="cpu", pack_weights=False).module)
    assert not packed_layers(load.load_model(folder, device="cpu", dtype="bfloat16").module)
    with pytest.raises(
        UsageError,
        match="pack_weights=True: weights are packed in float32 on a CPU, not in bfloat16 on cpu",
    ):
        load.load_model(folder, device="cpu", dtype="bfloat16", pack_weights=True)
