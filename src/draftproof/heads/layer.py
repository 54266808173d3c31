"""One decoder layer in Llama's manner, the body of EAGLE heads. What a row attends to is not its
business: `attend` decides, so the same weights serve cached reading, draft trees and training over
several steps at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(queries [batch, heads, n, width], keys, values [batch, kv heads, n, width]), rotated, -> [batch,
heads, n, width]."""


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis; 16-bit input is normalised in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.element_size() == 2 else x
        return self.weight * (
            wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        ).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention whose input may be wider than its output: [.., in_width] -> [..,
    hidden_size]."""

    def __init__(self, config: Any, in_width: int) -> None:
        super().__init__()
        self.head_dim = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        bias = bool(getattr(config, "attention_bias", False))
        heads = config.num_attention_heads * self.head_dim
        kv_heads = config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(in_width, heads, bias=bias)
        self.k_proj = nn.Linear(in_width, kv_heads, bias=bias)
        self.v_proj = nn.Linear(in_width, kv_heads, bias=bias)
        self.o_proj = nn.Linear(heads, config.hidden_size, bias=bias)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        queries, keys, values = (
            self._split(projection(x)) for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = attend(rotate(queries, rotation), rotate(keys, rotation), values)
        merged: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return merged

    def _split(self, x: Tensor) -> Tensor:
        split: Tensor = x.unflatten(-1, (-1, self.head_dim))
        return split.transpose(1, 2)


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        bias = bool(getattr(config, "mlp_bias", False))
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions: x [batch, heads, n, width], rotation (cos, sin) each [batch, n, width]."""
    cos, sin = (part.unsqueeze(1).to(x.dtype) for part in rotation)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def rotary(config: Any) -> nn.Module:
    """The target family's own rotary embedding, scaling included: (x, positions [batch, n]) ->
    (cos, sin)."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    made: nn.Module = LlamaRotaryEmbedding(config)
    return made


def attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
) -> Tensor:
    """Scaled dot products over [batch, heads, n, width]; mask [n, keys], True where a row may look;
    grouped heads allowed."""
    out: Tensor = functional.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=mask,
        is_causal=causal,
        enable_gqa=queries.shape[1] != keys.shape[1],
    )
    return out
