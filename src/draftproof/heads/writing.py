"""The layouts heads are written in: from the one form (`Stored`) to the config and the tensors that
servers load.

medusa           vLLM's own layout
eagle3, eagle    the `speculators` layout, and for `eagle`, which vLLM does not take in it,
                 SafeAILab's own
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from draftproof.heads.layouts import Stored

SPECULATORS_VERSION = "0.9.0"

Files = tuple[dict[str, Any], dict[str, Tensor]]
"""A config and its tensors."""


def files_of(stored: Stored, target: str, architectures: Sequence[str], length: int) -> Files:
    """Config and tensors of a head in the layout our folders have. target, architectures: the
    verifier as servers name it; length: the draft length proposed to them."""
    if stored.method == "medusa":
        return medusa_files(stored)
    return speculators_files(stored, target, architectures, length)


def write_folder(
    folder: str | Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write `model.safetensors` and `config.json`; the config appears last, so a folder with one is
    complete."""
    from safetensors.torch import save_file

    path = Path(folder).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").unlink(missing_ok=True)  # of a head that was here before
    save_file(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
        path / "model.safetensors",
    )
    part = path / "config.json.part"
    part.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    part.replace(path / "config.json")


def medusa_files(stored: Stored) -> Files:
    """vLLM's layout for Medusa: blocks.{head}.layers.{block}.weight and .bias,
    lm_heads.{head}.weight."""
    vocab_size, hidden_size = stored.tensors["lm_heads.0.weight"].shape
    config: dict[str, Any] = {
        "model_type": "medusa",
        "architectures": ["MedusaModel"],
        "hidden_size": hidden_size,
        "vocab_size": vocab_size,
        "truncated_vocab_size": vocab_size,
        "num_heads": stored.shape["num_heads"],
        "num_hidden_layers": stored.shape["num_layers"],
        "original_lm_head": False,
        "medusa_fc_bias": True,
    }
    if stored.hidden_layers is not None:
        config["hidden_state_layer_ids"] = list(stored.hidden_layers)
    tensors = {}
    for name, tensor in stored.tensors.items():
        parts = name.split(".")
        tensors[
            f"blocks.{parts[1]}.layers.{parts[2]}.{parts[4]}" if parts[0] == "blocks" else name
        ] = tensor
    return config, tensors


def speculators_files(
    stored: Stored, target: str, architectures: Sequence[str], length: int
) -> Files:
    """The `speculators` layout of EAGLE heads."""
    proposal = {
        "proposal_type": "greedy",
        "speculative_tokens": length,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    config: dict[str, Any] = {
        "speculators_model_type": stored.method,
        "speculators_version": SPECULATORS_VERSION,
        "tie_word_embeddings": False,
        "transformer_layer_config": dict(stored.shape["layer"]),
        "speculators_config": {
            "algorithm": stored.method,
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": target, "architectures": list(architectures)},
        },
    }
    if stored.method == "eagle3":
        config |= {
            "architectures": ["Eagle3Speculator"],
            "draft_vocab_size": len(stored.tensors["lm_head.weight"]),
            "norm_before_residual": stored.shape["norm_before_residual"],
            "target_hidden_size": None,
            "eagle_aux_hidden_state_layer_ids": list(stored.hidden_layers or ()),
        }
        return config, dict(stored.tensors)
    config |= {
        "architectures": ["EagleSpeculator"],
        "transformer_layer_architecture": "LlamaDecoderLayer",
        "layernorms": False,
        "fusion_bias": stored.shape["bias"],
        "hidden_state_layer_ids": list(stored.hidden_layers or ()),
    }
    tensors = {}
    for name, tensor in stored.tensors.items():
        name = name.replace("fc.", "fusion_fc.", 1) if name.startswith("fc.") else name
        tensors[name.replace("layers.0.", "transformer.", 1)] = tensor
    return config, tensors


def published_eagle_files(stored: Stored) -> Files:
    """SafeAILab's layout of an EAGLE head: a Llama config of one layer, fc.* and layers.0.*; no
    output layer, no embedding."""
    config = {
        **stored.shape["layer"],
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "bias": stored.shape["bias"],
    }
    return config, dict(stored.tensors)
