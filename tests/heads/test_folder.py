"""Heads in folders: our own and the published layouts, and everything that can be wrong with one, named in the refusal."""

from __future__ import annotations

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.errors import UsageError
from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3, fused_layers
from draftproof.heads.folder import load_head, save_head
from draftproof.heads.medusa import Medusa
from draftproof.heads.target import fingerprint, target_view
from draftproof.models.hf import HFModel
from tiny import VOCAB, llama

METHODS = ("medusa", "eagle", "eagle3")


def view(**changes):
    module = llama(num_hidden_layers=4, **changes)
    return target_view(HFModel(module, name="tiny", check=False))


def fresh(method, target):
    torch.manual_seed(1)
    if method == "medusa":
        head = Medusa.of(target, num_heads=3, num_layers=2)
    elif method == "eagle":
        head = Eagle.of(target)
    else:
        head = Eagle3.of(target, range(0, VOCAB, 2))
    with torch.no_grad():
        for weights in head.parameters():
            weights.add_(torch.randn_like(weights) * 0.1)
    return head


def change_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))


def change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.fixture(params=METHODS)
def kept(request, tmp_path):
    target = view()
    head = fresh(request.param, target)
    save_head(tmp_path, head, target)
    return request.param, target, head, tmp_path


def test_what_is_saved_is_loaded(kept):
    method, target, head, folder = kept
    loaded = load_head(folder, target, method)
    assert type(loaded) is type(head)
    assert loaded.hidden_layers == head.hidden_layers
    for name, tensor in head.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert not any(weights.requires_grad for weights in loaded.parameters())


def test_the_config_is_the_one_servers_read(kept):
    method, _, head, folder = kept
    config = json.loads((folder / "config.json").read_text())
    names = set(load_file(folder / "model.safetensors"))
    if method == "medusa":
        assert config["model_type"] == "medusa" and config["num_heads"] == 3 and config["num_hidden_layers"] == 2
        assert {"blocks.0.layers.1.weight", "blocks.2.layers.0.bias", "lm_heads.2.weight"} <= names
    elif method == "eagle":
        assert config["speculators_model_type"] == "eagle" and config["fusion_bias"] is True
        assert {"fusion_fc.weight", "transformer.self_attn.q_proj.weight"} <= names
    else:
        assert config["speculators_model_type"] == "eagle3" and config["norm_before_residual"] is False
        assert config["eagle_aux_hidden_state_layer_ids"] == list(fused_layers(4)) == [1, 2, 2]
        assert config["draft_vocab_size"] == VOCAB // 2
        assert {"fc.weight", "layers.0.hidden_norm.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"} <= names


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_target_in_another_dtype_is_the_same_target(kept, dtype):
    method, _, _, folder = kept
    module = llama(torch.float32, num_hidden_layers=4).to(dtype)
    loaded = load_head(folder, target_view(HFModel(module, name="tiny", check=False)), method)
    assert next(loaded.parameters()).dtype == dtype


def test_fingerprints_tell_weights_apart_and_dtypes_not():
    module = llama(num_hidden_layers=2)
    rounded = fingerprint(module.to(torch.bfloat16))
    assert rounded == fingerprint(module.to(torch.float32))
    assert rounded != fingerprint(llama(num_hidden_layers=2, seed=1))


def test_a_missing_an_extra_and_a_misshaped_tensor_are_named(kept):
    method, target, _, folder = kept
    name = sorted(load_file(folder / "model.safetensors"))[-1]
    ours = {"medusa": r"lm_heads\.2\.weight", "eagle": r"layers\.0\.self_attn\.v_proj\.weight", "eagle3": "t2d"}[method]
    tensors = load_file(folder / "model.safetensors")
    for change, said in (
        (lambda t: t.pop(name), rf"lacks {ours}"),
        (lambda t: t.update(strange=torch.zeros(2)), "has strange, which"),
        (lambda t: t.update({name: torch.zeros(3, dtype=t[name].dtype)}), rf"has {ours} of shape \[3\] where"),
    ):
        save_file(tensors, folder / "model.safetensors")
        change_tensors(folder, change)
        with pytest.raises(UsageError, match=said):
            load_head(folder, target, method)


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_a_file_of_two_blocks_does_not_load_with_another_number(tmp_path, layers):
    """Heads whose number of residual layers differs between file and configuration were once loaded in silence."""
    target = view()
    save_head(tmp_path, fresh("medusa", target), target)
    change_config(tmp_path, num_hidden_layers=layers)
    with pytest.raises(UsageError, match=r"blocks\.0\."):
        load_head(tmp_path, target, "medusa")


def test_blocks_of_one_head_do_not_share_weights():
    """The published code repeats one module in a list."""
    head = Medusa.of(view(), num_heads=2, num_layers=2)
    weights = [parameter.data_ptr() for parameter in head.blocks.parameters()]
    assert len(weights) == len(set(weights)) == 2 * 2 * 2


def test_another_hidden_size_is_refused(kept):
    method, _, _, folder = kept
    with pytest.raises(UsageError, match="hidden_size is 32 there and 16 here"):
        load_head(folder, view(hidden_size=16), method)


def test_other_weights_of_the_same_shape_are_another_target(kept):
    method, _, _, folder = kept
    with pytest.raises(UsageError, match="trained for 'tiny'.*weights of this target are others"):
        load_head(folder, view(seed=7), method)


def test_the_layers_it_reads_are_checked(kept):
    method, target, _, folder = kept
    key = "eagle_aux_hidden_state_layer_ids" if method == "eagle3" else "hidden_state_layer_ids"
    change_config(folder, **{key: [1, 2, 9] if method == "eagle3" else [9]})
    with pytest.raises(UsageError, match=r"reads hidden states \[.*9\]; tiny has 0 to 4"):
        load_head(folder, target, method)
    if method == "eagle3":
        change_config(folder, **{key: ...})
        with pytest.raises(UsageError, match="does not say which hidden states"):
            load_head(folder, target, method)


def test_a_damaged_file_is_refused(kept):
    method, target, _, folder = kept
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="is damaged"):
        load_head(folder, target, method)
    file.write_bytes(whole)
    name = next(name for name, tensor in load_file(file).items() if tensor.is_floating_point())
    change_tensors(folder, lambda tensors: tensors[name].fill_(float("nan")))
    with pytest.raises(UsageError, match="hold NaN"):
        load_head(folder, target, method)


def test_a_head_of_another_method_is_refused(kept):
    method, target, _, folder = kept
    other = METHODS[(METHODS.index(method) + 1) % 3]
    with pytest.raises(UsageError, match=f"holds a head for method '{method}', not '{other}'"):
        load_head(folder, target, other)


def test_swapped_draft_vocabularies_are_refused(tmp_path):
    target = view()
    save_head(tmp_path, fresh("eagle3", target), target)
    change_tensors(tmp_path, lambda tensors: tensors.update(t2d=~tensors["t2d"]))
    with pytest.raises(UsageError, match="t2d names other ids than d2t"):
        load_head(tmp_path, target)
    change_tensors(tmp_path, lambda tensors: tensors["d2t"].add_(torch.arange(VOCAB // 2).flip(0) * 2))
    with pytest.raises(UsageError, match="not one to one"):
        load_head(tmp_path, target)


def test_no_folder_no_config_no_weights(tmp_path):
    target = view()
    with pytest.raises(UsageError, match="there is no folder"):
        load_head(tmp_path / "nowhere", target)
    with pytest.raises(UsageError, match="config.json cannot be read"):
        load_head(tmp_path, target)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="has no weights"):
        load_head(tmp_path, target)
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="no head in a layout known here"):
        load_head(tmp_path, target)


def published_medusa(folder, head, *, pickle):
    """As FasterDecoding/Medusa saves it."""
    heads, blocks = head.config.num_heads, head.config.num_layers
    tensors = {}
    for name, tensor in head.state_dict().items():
        name = re.sub(r"^blocks\.(\d+)\.(\d+)\.linear", r"\1.\2.linear", name)
        tensors[re.sub(r"^lm_heads\.(\d+)", rf"\1.{blocks}", name)] = tensor.clone()
    (folder / "config.json").write_text(json.dumps({"medusa_num_heads": heads, "medusa_num_layers": blocks}))
    if pickle:
        torch.save(tensors, folder / "medusa_lm_head.pt")
    else:
        save_file(tensors, folder / "medusa_lm_head.safetensors")


@pytest.mark.parametrize("pickle", [True, False])
def test_medusa_as_published(tmp_path, pickle):
    target = view()
    head = fresh("medusa", target)
    published_medusa(tmp_path, head, pickle=pickle)
    loaded = load_head(tmp_path, target, "medusa")
    assert loaded.hidden_layers == (4,)
    assert torch.equal(loaded.blocks[2][1].linear.bias, head.blocks[2][1].linear.bias)
    assert torch.equal(loaded.lm_heads[1].weight, head.lm_heads[1].weight)


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_eagle_as_published(tmp_path, method):
    """SafeAILab's files: one pickled state dict with the target's embedding in it, a Llama config beside it."""
    target = view()
    head = fresh(method, target)
    tensors = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    if method == "eagle3":
        tensors = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in tensors.items()}
    tensors["embed_tokens.weight"] = target.embed(torch.arange(VOCAB))
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    config = head.config.to_dict() | {"draft_vocab_size": VOCAB // 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded = load_head(tmp_path, target, method)
    assert torch.equal(loaded.fc.weight, head.fc.weight)
    assert torch.equal(loaded.layers[0].self_attn.q_proj.weight, head.layers[0].self_attn.q_proj.weight)
    with pytest.raises(UsageError, match=r"carries embed_tokens.weight of another target"):
        load_head(tmp_path, view(seed=5), method)


def test_rotary_settings_come_from_the_target_and_are_kept(tmp_path):
    """A head that ignores the target's rotary base was once trained well and served badly."""
    target = view(rope_parameters={"rope_type": "default", "rope_theta": 123.0})
    head = fresh("eagle3", target)
    assert head.config.rope_parameters["rope_theta"] == 123.0
    save_head(tmp_path, head, target)
    loaded = load_head(tmp_path, target, "eagle3")
    assert loaded.config.rope_parameters["rope_theta"] == 123.0
    x, places = torch.zeros(1, 1, 8), torch.tensor([[5]])
    assert torch.equal(loaded._rotary[0](x, places)[0], head._rotary[0](x, places)[0])
    assert not torch.allclose(loaded._rotary[0](x, places)[0], fresh("eagle3", view())._rotary[0](x, places)[0])
