"""A fresh EAGLE-3 head that begins as the target's own last layer, instead of at random.

The residual of its layer begins as the highest of the fused states, attention and MLP as those of
the last layer, the final norm as the target's: the untrained head is then a target whose last layer
also reads the next token. On 20,000 tokens it accepted .235 of first drafts where a random
beginning accepted .209 (SmolLM2-135M).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from draftproof.errors import UsageError
from draftproof.heads.eagle3 import Eagle3

RANDOM_SHARE, EMBEDDING_SHARE = 0.1, 0.5


def fits_last_layer(head: Eagle3, module: Any) -> bool:
    """Whether the last layer of `module` has the shape of the head's."""
    return _copied(head, module) is not None


def begin_as_last_layer(head: Eagle3, module: Any) -> None:
    """Copy what fits from `module`, the target's. UsageError when its last layer is of another
    shape than the head's."""
    pairs = _copied(head, module)
    if pairs is None:
        raise UsageError(
            "the head cannot begin as the target's last layer, which has another shape: "
            "begin at random instead"
        )
    layer: Any = head.layers[0]
    width = head.config.hidden_size
    with torch.no_grad():
        for ours, theirs in pairs:
            ours.copy_(theirs)
        for one in "qkv":
            getattr(layer.self_attn, f"{one}_proj").weight[:, :width].mul_(EMBEDDING_SHARE)
        head.fc.weight.mul_(RANDOM_SHARE)
        highest = max(range(len(head.hidden_layers)), key=lambda place: head.hidden_layers[place])
        head.fc.weight[:, highest * width : (highest + 1) * width] += torch.eye(
            width, device=head.fc.weight.device
        )


def _copied(head: Eagle3, module: Any) -> list[tuple[Tensor, Tensor]] | None:
    """(the head's weight, the target's) for everything that is copied; None where one is missing or
    of another shape."""
    base: Any = getattr(module, "base_model", None)
    layers, norm = (
        getattr(base, "layers", None),
        getattr(getattr(base, "norm", None), "weight", None),
    )
    if not layers or norm is None:
        return None
    layer: Any = head.layers[0]
    width = head.config.hidden_size
    wanted = {
        **{f"mlp.{name}": weight for name, weight in layer.mlp.named_parameters()},
        "post_attention_layernorm.weight": layer.post_attention_layernorm.weight,
        "input_layernorm.weight": layer.hidden_norm.weight,
        "self_attn.o_proj.weight": layer.self_attn.o_proj.weight,
        **{
            f"self_attn.{one}_proj.weight": getattr(layer.self_attn, f"{one}_proj").weight[
                :, width:
            ]
            for one in "qkv"
        },
    }
    found = layers[-1].state_dict()
    pairs = [
        (head.norm.weight, norm),
        *((weight, found.get(name)) for name, weight in wanted.items()),
    ]
    if any(theirs is None or ours.shape != theirs.shape for ours, theirs in pairs):
        return None
    return pairs
