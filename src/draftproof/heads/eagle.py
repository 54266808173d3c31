"""EAGLE's head (2401.15077; EAGLE-2, 2406.16858, has the same): it predicts the target's next
feature, not the next token.

Input: embedding of token t + 1 beside the target's last hidden state at t, made one by a linear
layer; one decoder layer without a norm before its attention; the output is the predicted state at t
+ 1, which the target's own frozen output layer turns into logits.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from draftproof.heads.feature_head import as_tensor
from draftproof.heads.layer import MLP, Attend, Attention, RMSNorm, rotary
from draftproof.heads.target import TargetView
from draftproof.models.support import context_limit


class EagleLayer(nn.Module):
    """A Llama layer without `input_layernorm`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.self_attn = Attention(config, config.hidden_size)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        x = x + self.self_attn(x, rotation, attend)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Eagle(nn.Module):
    """config: shape of the layer (a transformers LlamaConfig). target: whose embedding and output
    layer are shared. hidden_layer: id of the hidden state that is the feature. bias: of the fusing
    layer."""

    def __init__(
        self, config: Any, target: TargetView, *, hidden_layer: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        self.config, self.target = config, target
        self.hidden_layers: tuple[int, ...] = (
            target.num_layers if hidden_layer is None else hidden_layer,
        )
        self.vocab_size, self.longest = target.vocab_size, context_limit(config)
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=bias)
        self.layers = nn.ModuleList([EagleLayer(config)])
        # in a list: it has no weights and is no part of the checkpoint
        self._rotary = [rotary(config)]

    @classmethod
    def of(cls, target: TargetView, **changes: Any) -> Eagle:
        """A fresh head for `target`, in float32; without a bias in the fusing layer, for which vLLM
        has no place."""
        bias = bool(changes.pop("bias", False))
        return cls(layer_config(target, **changes), target, bias=bias).to(target.device)

    def fuse(self, hidden: Mapping[int, Any]) -> Tensor:
        return as_tensor(hidden[self.hidden_layers[0]], self.fc.weight)

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        embedded = self.target.embed(tokens).to(features.dtype)
        x = self.fc(torch.cat([embedded, features], dim=-1))
        rotation = self._rotary[0](x, positions)
        out: Tensor = self.layers[0](x, rotation, attend)
        return out

    def logits(self, features: Tensor) -> Tensor:
        """Through the target's own output layer, in the target's dtype."""
        return self.target.output(features.to(self.target.dtype))

    def spread(self, logits: Tensor) -> Tensor:
        """The draft vocabulary is the target's."""
        return logits


def layer_config(target: TargetView, **changes: Any) -> Any:
    """A LlamaConfig for a layer of the target's own width, heads and rotary positions; `changes`
    replace single entries."""
    from transformers import LlamaConfig

    theirs = target.config
    taken = (
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "rms_norm_eps",
        "max_position_embeddings",
    )
    shape = {
        name: getattr(theirs, name) for name in taken if getattr(theirs, name, None) is not None
    }
    ropes = getattr(theirs, "rope_parameters", None)
    if ropes and "rope_theta" in ropes:
        shape["rope_parameters"] = copy.deepcopy(dict(ropes))
    shape |= {"hidden_size": target.width, "vocab_size": target.vocab_size, "num_hidden_layers": 1}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    return LlamaConfig(**{**shape, **ends, "tie_word_embeddings": False, **changes})
