"""Small heads with random weights, and their folders in the layouts that others publish."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.medusa import Medusa
from draftproof.heads.target import TargetView, target_view
from draftproof.models.hf import HFModel
from tiny import VOCAB, llama

METHODS = ("medusa", "eagle", "eagle3")


def view(**changes: Any) -> TargetView:
    """Of a small target with 4 layers, unless said otherwise."""
    return target_view(
        HFModel(llama(**{"num_hidden_layers": 4, **changes}), name="tiny", check=False)
    )


def fresh(method: str, target: TargetView) -> Any:
    torch.manual_seed(1)
    head: Any
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


def published_medusa(folder: Path, head: Any, *, pickle: bool) -> None:
    """As FasterDecoding/Medusa saves it."""
    heads, blocks = head.config.num_heads, head.config.num_layers
    tensors = {}
    for name, tensor in head.state_dict().items():
        name = re.sub(r"^blocks\.(\d+)\.(\d+)\.linear", r"\1.\2.linear", name)
        tensors[re.sub(r"^lm_heads\.(\d+)", rf"\1.{blocks}", name)] = tensor.clone()
    (folder / "config.json").write_text(
        json.dumps({"medusa_num_heads": heads, "medusa_num_layers": blocks})
    )
    if pickle:
        torch.save(tensors, folder / "medusa_lm_head.pt")
    else:
        save_file(tensors, folder / "medusa_lm_head.safetensors")


def published_eagle(folder: Path, head: Any, target: TargetView) -> None:
    """As SafeAILab/EAGLE saves heads of the first and of the third generation."""
    tensors = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    config = head.config.to_dict()
    if isinstance(head, Eagle3):
        tensors = {
            name.replace("layers.0.", "midlayer."): tensor for name, tensor in tensors.items()
        }
        config |= {"draft_vocab_size": len(head.d2t)}
    tensors["embed_tokens.weight"] = target.embed(torch.arange(target.vocab_size))
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps(config))
