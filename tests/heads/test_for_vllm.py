"""`draftproof export vllm`: what is written is what vLLM's loaders ask for, what they cannot run is
refused, nothing is lost.

The lists of tensors below were read off vLLM 0.32's own modules for a target of width 32 with 8
layers, 4 heads of 8 (2 for keys and values), an MLP of 64 and 64 ids. vLLM itself is not needed
here: benchmarks/compare_with_vllm.py loads such folders."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.cli.main import run
from draftproof.errors import UsageError
from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.folder import load_head, save_head
from draftproof.heads.for_vllm import export_for_vllm
from draftproof.heads.medusa import Medusa
from draftproof.heads.target import target_view
from draftproof.models.hf import HFModel
from published_heads import METHODS, fresh, published_eagle, published_medusa
from tiny import VOCAB, llama

NORM = ("post_attention_layernorm",)
MLP = {"gate_proj": [64, 32], "up_proj": [64, 32], "down_proj": [32, 64]}


def layer(read, norms):
    attention = {
        "q_proj": [32, read],
        "k_proj": [16, read],
        "v_proj": [16, read],
        "o_proj": [32, 32],
    }
    return {
        **{f"layers.0.{norm}.weight": [32] for norm in norms},
        **{f"layers.0.self_attn.{name}.weight": shape for name, shape in attention.items()},
        **{f"layers.0.mlp.{name}.weight": shape for name, shape in MLP.items()},
    }


EXPECTED = {
    "eagle3": {
        "fc.weight": [32, 96],
        **layer(64, ("input_layernorm", "hidden_norm", *NORM)),
        "norm.weight": [32],
        "lm_head.weight": [32, 32],
        "d2t": [32],
        "t2d": [64],
    },
    "eagle": {"fc.weight": [32, 64], **layer(32, NORM)},
    "medusa": {
        **{f"lm_heads.{head}.weight": [64, 32] for head in range(3)},
        **{
            f"blocks.{head}.layers.{block}.weight": [32, 32]
            for head in range(3)
            for block in range(2)
        },
        **{f"blocks.{head}.layers.{block}.bias": [32] for head in range(3) for block in range(2)},
    },
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A target in a folder, as its exports name it."""
    folder = tmp_path_factory.mktemp("target")
    module = llama(num_hidden_layers=8)
    module.save_pretrained(folder)
    return target_view(HFModel(module, name=str(folder), check=False))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "head"
    made.mkdir()
    return made


def shapes(folder):
    return {
        name: list(tensor.shape) for name, tensor in load_file(folder / "model.safetensors").items()
    }


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("method", METHODS)
def test_the_folder_is_what_vllm_asks_for_and_what_we_read_back(method, model, folder, tmp_path):
    head = fresh(method, model)
    save_head(folder, head, model, length=3)
    done = export_for_vllm(folder, tmp_path / "out")
    assert shapes(tmp_path / "out") == EXPECTED[method]
    # Medusa: as many as there are heads
    assert done.speculative_config["num_speculative_tokens"] == 3
    assert done.command.startswith(f"vllm serve {model.name} --speculative-config '")
    loaded = load_head(tmp_path / "out", model, method)
    for name, tensor in head.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert loaded.hidden_layers == head.hidden_layers


def test_the_configurations_are_those_vllm_reads(model, folder, tmp_path):
    for method in METHODS:
        save_head(folder, fresh(method, model), model)
        export_for_vllm(folder, tmp_path / method)
    third, first, medusa = (
        config_of(tmp_path / method) for method in ("eagle3", "eagle", "medusa")
    )
    assert third["speculators_model_type"] == "eagle3" and third[
        "eagle_aux_hidden_state_layer_ids"
    ] == [2, 4, 5]
    assert third["norm_before_residual"] is False and third["draft_vocab_size"] == 32
    assert third["transformer_layer_config"]["model_type"] == "llama"
    assert third["speculators_config"]["verifier"] == {
        "name_or_path": model.name,
        "architectures": ["LlamaForCausalLM"],
    }
    # vLLM puts "Eagle" before the architecture; "speculators" folders of this kind are unknown to
    # it
    assert (
        first["architectures"] == ["LlamaForCausalLM"]
        and first["model_type"] == "llama"
        and not first["bias"]
    )
    assert "speculators_model_type" not in first and first["num_hidden_layers"] == 1
    assert (
        medusa["model_type"] == "medusa"
        and medusa["medusa_fc_bias"] is True
        and medusa["original_lm_head"] is False
    )


@pytest.mark.parametrize("method", METHODS)
def test_published_folders_are_exported_too(method, model, folder, tmp_path):
    head = fresh(method, model)
    if method == "medusa":
        published_medusa(folder, head, pickle=True)
    else:
        published_eagle(folder, head, model)
    with pytest.raises(
        UsageError, match="does not say which model it is for: name it with --target"
    ):
        export_for_vllm(folder, tmp_path / "out")
    export_for_vllm(folder, tmp_path / "out", target=model.name)
    assert shapes(tmp_path / "out") == EXPECTED[method]
    loaded = load_head(tmp_path / "out", model, method)
    assert all(
        torch.equal(loaded.state_dict()[name], tensor) for name, tensor in head.state_dict().items()
    )


def test_a_head_over_the_whole_vocabulary_goes_without_its_tables(model, folder, tmp_path):
    """With as many draft ids as ids vLLM keeps no table, and would stumble over one in the file."""
    head = Eagle3.of(model, range(VOCAB))
    save_head(folder, head, model)
    export_for_vllm(folder, tmp_path / "out")
    assert not {"d2t", "t2d"} & set(shapes(tmp_path / "out"))
    assert torch.equal(load_head(tmp_path / "out", model).lm_head.weight, head.lm_head.weight)


def test_output_layers_are_padded_to_the_targets_rows(model, folder, tmp_path):
    """Where the tokenizer has fewer ids than the target's output layer has rows. The rows added can
    never win."""
    config = model.config.__class__(**{**model.config.to_dict(), "vocab_size": VOCAB + 4})
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(tmp_path / "wide")
    head = fresh("medusa", model)
    save_head(folder, head, model)
    export_for_vllm(folder, tmp_path / "out", target=str(tmp_path / "wide"))
    weight = load_file(tmp_path / "out" / "model.safetensors")["lm_heads.2.weight"]
    assert weight.shape == (VOCAB + 4, 32) and torch.equal(weight[:VOCAB], head.lm_heads[2].weight)
    states = torch.randn(500, 32)
    assert int((states @ weight.T).argmax(-1).max()) < VOCAB
    save_head(folder, fresh("eagle3", model), model)
    export_for_vllm(folder, tmp_path / "out", target=str(tmp_path / "wide"))
    assert config_of(tmp_path / "out")["transformer_layer_config"]["vocab_size"] == VOCAB + 4


def refused(folder, out, said, **how):
    with pytest.raises(UsageError, match=said):
        export_for_vllm(folder, out, **how)
    assert not out.exists()


def test_what_vllm_cannot_run_is_refused_in_a_sentence(model, folder, tmp_path):
    out = tmp_path / "out"
    save_head(folder, Eagle.of(model, bias=True), model)
    refused(folder, out, "has a bias in its fusing layer, for which vLLM has no place")
    save_head(folder, Eagle(Eagle.of(model).config, model, hidden_layer=3, bias=False), model)
    refused(folder, out, r"reads hidden state \[3\]; vLLM gives eagle heads the last one, 8")
    save_head(folder, Medusa.of(model, num_heads=2), model)
    refused(folder, out, "has 2 heads, so no draft is longer", length=3)
    config = Eagle3.of(model, [1, 2]).config
    for layers in ((2, 4, 4), (4, 2, 5), (2, 4, 8)):
        save_head(folder, Eagle3(config, model, hidden_layers=layers, draft_ids=[1, 2]), model)
        refused(
            folder, out, r"fuses hidden states \[.*\]; vLLM hands out each once, in ascending order"
        )


def test_another_number_of_fused_states_is_said_to_vllm(model, folder, tmp_path):
    head = Eagle3(
        Eagle3.of(model, [1, 2]).config, model, hidden_layers=(1, 3, 5, 6), draft_ids=[1, 2]
    )
    save_head(folder, head, model)
    export_for_vllm(folder, tmp_path / "out")
    assert config_of(tmp_path / "out")["transformer_layer_config"]["num_aux_hidden_states"] == 4
    assert load_head(tmp_path / "out", model).hidden_layers == (1, 3, 5, 6)


@pytest.mark.parametrize("method", METHODS)
def test_a_file_that_does_not_fit_is_refused_with_names(method, model, folder, tmp_path):
    save_head(folder, fresh(method, model), model)
    whole = load_file(folder / "model.safetensors")
    name = next(
        name
        for name in sorted(whole, reverse=True)
        if name.endswith(("up_proj.weight", "layers.0.weight"))
    )
    for changed, said in (
        ({key: tensor for key, tensor in whole.items() if key != name}, "lacks .*weight"),
        (whole | {"strange": torch.zeros(1)}, "has strange, for which vLLM has no place"),
        (whole | {name: torch.zeros(3)}, r"of shape \[3\] where vLLM wants \[.*32\]"),
        (whole | {name: whole[name] / 0}, "is damaged: .* hold NaN"),
    ):
        save_file(changed, folder / "model.safetensors")
        refused(folder, tmp_path / "out", said)


def test_the_target_must_fit_and_be_there(model, folder, tmp_path):
    save_head(folder, fresh("eagle3", model), model)
    llama(num_hidden_layers=8, hidden_size=16).save_pretrained(tmp_path / "narrow")
    refused(
        folder,
        tmp_path / "out",
        "hidden_size is 32 there and 16 here",
        target=str(tmp_path / "narrow"),
    )
    llama(num_hidden_layers=3).save_pretrained(tmp_path / "shallow")
    refused(
        folder,
        tmp_path / "out",
        "num_hidden_layers is 8 there and 3 here",
        target=str(tmp_path / "shallow"),
    )
    refused(
        folder, tmp_path / "out", "there is no file or folder", target=str(tmp_path / "nowhere")
    )
    with pytest.raises(UsageError, match="would overwrite"):
        export_for_vllm(folder, folder)


def test_a_target_out_of_reach_is_a_note(model, folder, tmp_path):
    """The one a folder remembers may be on another machine."""
    save_head(folder, fresh("eagle3", model), model)
    config = config_of(folder)
    config["draftproof"]["target"]["name"] = "/on/another/machine"
    (folder / "config.json").write_text(json.dumps(config))
    done = export_for_vllm(folder, tmp_path / "out")
    assert (
        done.notes[0].startswith("the target was not looked at")
        and "/on/another/machine" in done.command
    )


def test_the_command_line(model, folder, tmp_path, capsys):
    save_head(folder, fresh("eagle3", model), model)
    assert run(["export", "vllm", str(folder), "-k", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (
        told["folder"] == str(folder.with_name("head-vllm"))
        and (tmp_path / "head-vllm" / "config.json").is_file()
    )
    assert told["speculative_config"] == {
        "method": "eagle3",
        "model": str(tmp_path / "head-vllm"),
        "num_speculative_tokens": 2,
        "draft_sample_method": "probabilistic",
    }
    assert run(["export", "vllm", str(folder), "--out", str(tmp_path / "again")]) == 0
    assert "vllm serve" in capsys.readouterr().out
    assert run(["export", "vllm", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err
