"""A fresh EAGLE-3 head that begins as the target's own last layer, instead of at random.

The residual of its layer begins as the highest of the fused states, attention and MLP as those of the last layer, the final
norm as the target's: the untrained head is then a target whose last layer also reads the next token. On 20,000 tokens it
accepted .235 of first drafts where a random beginning accepted .209 (SmolLM2-135M).
"""

from __future__ import annotations

from typing import Any

import torch

from draftproof.errors import UsageError
from draftproof.heads.eagle3 import Eagle3

RANDOM_SHARE, EMBEDDING_SHARE = 0.1, 0.5


def begin_as_last_layer(head: Eagle3, module: Any) -> None:
    """Copy what fits from `module`, the target's. UsageError when its last layer is of another shape than the head's."""
    base, layer, width = getattr(module, "base_model", None), head.layers[0], head.config.hidden_size
    try:
        last, norm = base.layers[-1], base.norm.weight
        wanted = {
            **{f"mlp.{name}": weight for name, weight in layer.mlp.named_parameters()},
            "post_attention_layernorm.weight": layer.post_attention_layernorm.weight,
            "input_layernorm.weight": layer.hidden_norm.weight,
            "self_attn.o_proj.weight": layer.self_attn.o_proj.weight,
            **{f"self_attn.{one}_proj.weight": getattr(layer.self_attn, f"{one}_proj").weight[:, width:] for one in "qkv"},
        }
        found = {name: weight for name, weight in last.named_parameters() if name in wanted}
    except (AttributeError, TypeError, IndexError):
        found, wanted, norm = {}, {"layers": head.norm.weight}, None
    if any(name not in found or found[name].shape != weight.shape for name, weight in wanted.items()):
        raise UsageError("the head cannot begin as the target's last layer, which has another shape: begin at random instead")
    with torch.no_grad():
        for name, weight in wanted.items():
            weight.copy_(found[name])
        for one in "qkv":
            getattr(layer.self_attn, f"{one}_proj").weight[:, :width].mul_(EMBEDDING_SHARE)
        head.norm.weight.copy_(norm)
        head.fc.weight.mul_(RANDOM_SHARE)
        highest = max(range(len(head.hidden_layers)), key=lambda place: head.hidden_layers[place])
        head.fc.weight[:, highest * width : (highest + 1) * width] += torch.eye(width, device=head.fc.weight.device)
