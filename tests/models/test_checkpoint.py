"""Drafters and extra layers that come inside a checkpoint are named, never silently left out."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from cache_families import deepseek_v3
from draftproof.errors import UnsupportedModelError
from draftproof.models.checkpoint import extras, tensor_names
from draftproof.models.load import load_model
from tiny import llama


def with_tensors(folder, *names):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file(
        {**tensors, **{name: torch.zeros(2) for name in names}}, file, metadata={"format": "pt"}
    )
    return folder


@pytest.fixture
def folder(tmp_path):
    llama().save_pretrained(tmp_path / "m")
    return tmp_path / "m"


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (
            "mtp.layers.0.weight",
            r"multi-token-prediction layers \(1 tensors, such as mtp.layers.0.weight\); "
            "they are not used",
        ),
        ("model.layers.2.eh_proj.weight", "multi-token-prediction layers"),
        (
            "model.layers.2.self_attn.q_proj.weight",
            "multi-token-prediction layers",
        ),  # numbered past the model's last layer
        ("medusa_head.0.0.linear.weight", "Medusa heads"),
    ],
)
def test_what_lies_beside_the_model_is_named_when_it_is_loaded(folder, capsys, tensor, said):
    import re

    model = load_model(with_tensors(folder, tensor), device="cpu")
    (note,) = model.notes
    assert re.search(said, note)
    assert note in capsys.readouterr().err


def test_a_plain_checkpoint_has_no_note(folder, capsys):
    assert load_model(folder, device="cpu").notes == ()
    assert "not used" not in capsys.readouterr().err


def test_layers_that_only_the_config_tells_of_are_named(tmp_path):
    module = deepseek_v3(torch.float32, num_nextn_predict_layers=1)
    module.save_pretrained(tmp_path)
    (note,) = extras(module.config, str(tmp_path))
    assert note == "the model was made with 1 multi-token-prediction layers; they are not used"


def test_names_come_from_an_index_or_from_headers(folder):
    names = tensor_names(folder)
    assert "model.embed_tokens.weight" in names and len(names) > 10
    index = {"weight_map": {"a": "1.safetensors", "mtp.b": "2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert tensor_names(folder) == ["a", "mtp.b"]
    assert tensor_names(folder / "absent") == []


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"model_type": "medusa", "architectures": ["MedusaModel"]}, "Medusa heads"),
        ({"model_type": "llama", "architectures": ["LlamaForCausalLMEagle3"]}, "an EAGLE head"),
        (
            {"speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"]},
            "an EAGLE head",
        ),
        ({"model_type": "mlp_speculator"}, "a speculator"),
    ],
)
def test_a_folder_of_a_drafter_is_no_model(tmp_path, config, what):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        UnsupportedModelError, match=f"holds {what}.*name the model it was trained for"
    ):
        load_model(tmp_path)
