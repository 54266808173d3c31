"""Heads in folders: our own and the published layouts, and everything that can be wrong with one,
named in the refusal."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.errors import UsageError
from draftproof.heads.eagle3 import Eagle3, fused_layers
from draftproof.heads.folder import load_head, save_head
from draftproof.heads.medusa import Medusa
from draftproof.heads.target import fingerprint, target_view
from draftproof.models.hf import HFModel
from published_heads import METHODS, fresh, published_eagle, published_medusa, view
from tiny import VOCAB, llama


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
        assert (
            config["model_type"] == "medusa"
            and config["num_heads"] == 3
            and config["num_hidden_layers"] == 2
        )
        assert {"blocks.0.layers.1.weight", "blocks.2.layers.0.bias", "lm_heads.2.weight"} <= names
    elif method == "eagle":
        assert config["speculators_model_type"] == "eagle" and config["fusion_bias"] is False
        assert {"fusion_fc.weight", "transformer.self_attn.q_proj.weight"} <= names
    else:
        assert (
            config["speculators_model_type"] == "eagle3" and config["norm_before_residual"] is False
        )
        assert config["eagle_aux_hidden_state_layer_ids"] == list(fused_layers(4)) == [1, 2, 2]
        assert config["draft_vocab_size"] == VOCAB // 2
        assert {
            "fc.weight",
            "layers.0.hidden_norm.weight",
            "norm.weight",
            "lm_head.weight",
            "d2t",
            "t2d",
        } <= names


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
    ours = {
        "medusa": r"lm_heads\.2\.weight",
        "eagle": r"layers\.0\.self_attn\.v_proj\.weight",
        "eagle3": "t2d",
    }[method]
    tensors = load_file(folder / "model.safetensors")
    for change, said in (
        (lambda t: t.pop(name), rf"lacks {ours}"),
        (lambda t: t.update(strange=torch.zeros(2)), "has strange, which"),
        (
            lambda t: t.update({name: torch.zeros(3, dtype=t[name].dtype)}),
            rf"has {ours} of shape \[3\] where",
        ),
    ):
        save_file(tensors, folder / "model.safetensors")
        change_tensors(folder, change)
        with pytest.raises(UsageError, match=said):
            load_head(folder, target, method)


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_a_file_of_two_blocks_does_not_load_with_another_number(tmp_path, layers):
    """Heads whose number of residual layers differs between file and configuration were once loaded
    in silence."""
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
    change_tensors(
        tmp_path, lambda tensors: tensors["d2t"].add_(torch.arange(VOCAB // 2).flip(0) * 2)
    )
    with pytest.raises(UsageError, match="not one to one"):
        load_head(tmp_path, target)


def test_no_folder_no_config_no_weights(tmp_path):
    target = view()
    with pytest.raises(UsageError, match="there is no folder"):
        load_head(tmp_path / "nowhere", target)
    with pytest.raises(UsageError, match="has no config.json; name the folder of a trained head"):
        load_head(tmp_path, target)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="config.json cannot be read"):
        load_head(tmp_path, target)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="has no weights"):
        load_head(tmp_path, target)
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="no head in a layout known here"):
        load_head(tmp_path, target)


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
    """SafeAILab's files: one pickled state dict with the target's embedding in it, a Llama config
    beside it."""
    target = view()
    head = fresh(method, target)
    published_eagle(tmp_path, head, target)
    loaded = load_head(tmp_path, target, method)
    assert torch.equal(loaded.fc.weight, head.fc.weight)
    assert torch.equal(
        loaded.layers[0].self_attn.q_proj.weight, head.layers[0].self_attn.q_proj.weight
    )
    with pytest.raises(UsageError, match=r"carries embed_tokens.weight of another target"):
        load_head(tmp_path, view(seed=5), method)


PUBLISHED = {
    "medusa": ("medusa_lm_head.pt", "1.0.linear.weight", r"blocks\.1\.0\.linear\.weight"),
    "eagle": (
        "pytorch_model.bin",
        "layers.0.mlp.up_proj.weight",
        r"layers\.0\.mlp\.up_proj\.weight",
    ),
    "eagle3": (
        "pytorch_model.bin",
        "midlayer.hidden_norm.weight",
        r"layers\.0\.hidden_norm\.weight",
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_what_is_wrong_with_a_published_file_is_named(tmp_path, method):
    """A tensor missing, one too many, one of another shape, and a target of another width, in every
    published layout."""
    target = view()
    head = fresh(method, target)
    if method == "medusa":
        published_medusa(tmp_path, head, pickle=True)
    else:
        published_eagle(tmp_path, head, target)
    file, name, ours = PUBLISHED[method]
    whole = torch.load(tmp_path / file, weights_only=True)
    for changed, said in (
        ({key: tensor for key, tensor in whole.items() if key != name}, f"lacks {ours}"),
        (whole | {"strange.weight": torch.zeros(2)}, r"has strange\.weight, which"),
        (whole | {name: torch.zeros(3)}, rf"has {ours} of shape \[3\] where"),
        (whole | {name: whole[name] / 0}, f"is damaged: {ours} hold NaN"),
    ):
        torch.save(changed, tmp_path / file)
        with pytest.raises(UsageError, match=said):
            load_head(tmp_path, target, method)
    torch.save(whole, tmp_path / file)
    other = view(hidden_size=16)
    with pytest.raises(
        UsageError,
        match=r"of shape \[\d+, 32\] where"
        if method == "medusa"
        else "is for a target of hidden size 32",
    ):
        load_head(tmp_path, other, method)


def test_rows_that_only_pad_the_output_layer_are_cut(tmp_path):
    """A head made for all rows of a target's output layer fits the target, whose tokenizer has
    fewer ids."""
    target = view()
    head = fresh("medusa", target)
    save_head(tmp_path, head, target)
    narrower = replace(target, vocab_size=VOCAB - 3, output_weight=target.output_weight[:-3])
    change_config(tmp_path, draftproof=...)
    loaded = load_head(tmp_path, narrower, "medusa")
    assert torch.equal(loaded.lm_heads[1].weight, head.lm_heads[1].weight[:-3])
    change_tensors(tmp_path, lambda t: t.update({"lm_heads.1.weight": torch.zeros(VOCAB + 1, 32)}))
    with pytest.raises(
        UsageError, match=r"has lm_heads\.1\.weight of shape \[65, 32\] where \[61, 32\]"
    ):
        load_head(tmp_path, narrower, "medusa")


def test_a_head_over_the_whole_vocabulary_may_leave_its_tables_out(tmp_path):
    target = view()
    head = Eagle3.of(target, range(VOCAB))
    save_head(tmp_path, head, target)
    change_tensors(tmp_path, lambda tensors: [tensors.pop(name) for name in ("d2t", "t2d")])
    loaded = load_head(tmp_path, target, "eagle3")
    assert loaded.draft_ids.tolist() == list(range(VOCAB)) and bool(loaded.t2d.all())


@pytest.mark.parametrize("variant", ["norm_before_fc", "fc_norm", "norm_output"])
def test_variants_that_compute_otherwise_are_refused(tmp_path, variant):
    """`norm_output` adds no tensor, so only the configuration tells; run as if it were not there,
    the head drafts nonsense."""
    target = view()
    save_head(tmp_path, fresh("eagle3", target), target)
    change_config(tmp_path, **{variant: True})
    with pytest.raises(UsageError, match=variant):
        load_head(tmp_path, target)


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
    assert not torch.allclose(
        loaded._rotary[0](x, places)[0], fresh("eagle3", view())._rotary[0](x, places)[0]
    )


def test_a_folder_in_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    target = view()
    save_head("~/head", fresh("eagle", target), target)
    assert (tmp_path / "head" / "config.json").is_file()
    load_head("~/head", target, "eagle")


def test_a_head_written_over_another_has_no_config_until_it_is_whole(tmp_path, monkeypatch):
    target = view()
    save_head(tmp_path, fresh("eagle", target), target)

    def fails(*_):
        raise OSError("no space left")

    monkeypatch.setattr("safetensors.torch.save_file", fails)
    with pytest.raises(OSError, match="no space"):
        save_head(tmp_path, fresh("medusa", target), target)
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"sliding_window": 8}, "sliding_window 8"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"attn_output_gate": True}, "says attn_output_gate of its layer"),
        ({"attn_output_gate": 0}, "says attn_output_gate of its layer"),
        ({"draft_vocab_size": 7}, "says draft_vocab_size 7, where"),
        ({"sliding_window": 8, "use_sliding_window": False}, None),
        ({"sliding_window": 128, "attn_output_gate": False, "draft_vocab_size": 32}, None),
    ],
)
def test_what_a_head_says_of_its_layer_is_honoured_or_refused(tmp_path, entries, said):
    target = view()
    save_head(tmp_path, fresh("eagle3", target), target)
    change_config(tmp_path, transformer_layer_config=layer_of(tmp_path) | entries)
    if said is None:
        load_head(tmp_path, target, "eagle3")
        return
    with pytest.raises(UsageError, match=said):
        load_head(tmp_path, target, "eagle3")


def layer_of(folder):
    return json.loads((folder / "config.json").read_text())["transformer_layer_config"]


@pytest.mark.parametrize("method", ["eagle", "eagle3", "medusa"])
@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"scaled_states": 2.0}, "says scaled_states of its head"),
        ({"scaled_states": 0}, "says scaled_states of its head"),
        ({"scaled_states": None, "use_cache": True, "dtype": "bfloat16"}, None),
    ],
)
def test_what_a_head_says_beside_its_layer_is_known_or_refused(tmp_path, method, entries, said):
    target = view()
    save_head(tmp_path, fresh(method, target), target)
    change_config(tmp_path, **entries)
    if said is None:
        load_head(tmp_path, target, method)
        return
    with pytest.raises(UsageError, match=said):
        load_head(tmp_path, target, method)


@pytest.mark.parametrize(
    ("method", "entries", "said"),
    [
        ("eagle", {"target_hidden_size": 7}, "says target_hidden_size 7, where"),
        (
            "eagle",
            {"transformer_layer_architecture": "OtherLayer"},
            "says transformer_layer_architecture 'OtherLayer'",
        ),
        ("eagle", {"norm_before_residual": True}, "says norm_before_residual of its head"),
        ("eagle3", {"target_hidden_size": 7}, "says target_hidden_size 7, where"),
        (
            "eagle3",
            {"draft_vocab_size": VOCAB},
            f"says draft_vocab_size {VOCAB}, where .* have {VOCAB // 2}",
        ),
        ("eagle3", {"fusion_bias": True}, "says fusion_bias of its head"),
        ("eagle3", {"embed_requires_grad": True, "enable_sp_ulysses": True}, None),
        ("medusa", {"hidden_size": 7}, "says hidden_size 7, where"),
        ("medusa", {"vocab_size": 7}, "says vocab_size 7, where"),
        ("medusa", {"truncated_vocab_size": 7}, "says truncated_vocab_size 7, where"),
        ("medusa", {"medusa_num_heads": 5}, "says medusa_num_heads 5, where .* have 3"),
        ("medusa", {"original_lm_head": True}, "says original_lm_head True, where"),
        ("medusa", {"medusa_fc_bias": False}, "says medusa_fc_bias False, where"),
    ],
)
def test_what_a_head_says_twice_agrees_with_its_tensors_and_its_target(
    tmp_path, method, entries, said
):
    target = view()
    save_head(tmp_path, fresh(method, target), target)
    change_config(tmp_path, **entries)
    if said is None:
        load_head(tmp_path, target, method)
        return
    with pytest.raises(UsageError, match=said):
        load_head(tmp_path, target, method)
