"""Medusa's heads (2401.10774): each reads the target's last hidden state and guesses one token
further ahead.

Head i (from 0) reads the state of position t and guesses token t + 2 + i; token t + 1 is the
target's own. A head is `num_layers` residual blocks x + SiLU(W x + b), W beginning at zero, then
its own output layer. Every block has weights of its own: a list that repeats one module would share
them, a fault of the published code when there are two blocks or more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from draftproof.heads.target import TargetView


@dataclass(frozen=True)
class MedusaConfig:
    """num_heads: how many tokens ahead. num_layers: residual blocks of each. hidden_layer: id of
    the target's hidden state that is read, the last one unless trained otherwise."""

    hidden_size: int
    vocab_size: int
    hidden_layer: int
    num_heads: int = 4
    num_layers: int = 1


class ResidualBlock(nn.Module):
    """x + SiLU(linear(x)); the identity at first but for the bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + functional.silu(self.linear(x))


class Medusa(nn.Module):
    """The heads. Their output layers begin as the target's own, given as `output_weight` [vocab,
    width], if any."""

    def __init__(self, config: MedusaConfig, output_weight: Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.blocks = nn.ModuleList(
            nn.ModuleList(ResidualBlock(width) for _ in range(config.num_layers))
            for _ in range(config.num_heads)
        )
        self.lm_heads = nn.ModuleList(
            nn.Linear(width, config.vocab_size, bias=False) for _ in range(config.num_heads)
        )
        if output_weight is not None:
            with torch.no_grad():
                for weight in self.lm_heads.parameters():
                    weight.copy_(output_weight)

    @classmethod
    def of(cls, target: TargetView, **changes: Any) -> Medusa:
        """Fresh heads for `target`, in float32."""
        config = MedusaConfig(target.width, target.vocab_size, target.num_layers, **changes)
        return cls(config, target.output_weight).to(target.device)

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        """Ids of the target's hidden states that are read."""
        return (self.config.hidden_layer,)

    def logits(self, hidden: Tensor, head: int) -> Tensor:
        """What head number `head` makes of hidden states [..., width]: [..., vocab]."""
        for block in self.blocks[head].children():
            hidden = block(hidden)
        out: Tensor = self.lm_heads[head](hidden)
        return out
