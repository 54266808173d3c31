"""EAGLE-3's head (2503.01840): it fuses three of the target's layers, predicts tokens directly,
over a smaller vocabulary.

The fused feature g (or, for drafted tokens, the head's own output) and the embedding of the next
token are normalised and stand side by side before a decoder layer whose queries, keys and values
are twice as wide; the residual runs on g. Its own norm and output layer give logits over the draft
vocabulary: draft id d is the target's id d + d2t[d], and t2d says which of the target's ids there
are. Names of the tensors are those of the `speculators` format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from draftproof.heads.eagle import layer_config
from draftproof.heads.feature_head import as_tensor
from draftproof.heads.layer import MLP, Attend, Attention, RMSNorm, rotary
from draftproof.heads.target import TargetView
from draftproof.models.support import context_limit


class Eagle3Layer(nn.Module):
    """Attention over (embedding, feature) side by side; the residual is the feature, before or
    after its norm."""

    def __init__(self, config: Any, norm_before_residual: bool) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.norm_before_residual = norm_before_residual
        self.input_layernorm = RMSNorm(width, eps)
        self.hidden_norm = RMSNorm(width, eps)
        self.self_attn = Attention(config, 2 * width)
        self.post_attention_layernorm = RMSNorm(width, eps)
        self.mlp = MLP(config)

    def forward(
        self, embedded: Tensor, features: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend
    ) -> Tensor:
        normed = self.hidden_norm(features)
        residual = normed if self.norm_before_residual else features
        x = residual + self.self_attn(
            torch.cat([self.input_layernorm(embedded), normed], dim=-1), rotation, attend
        )
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Eagle3(nn.Module):
    """config: shape of the layer (a transformers LlamaConfig). hidden_layers: ids of the hidden
    states that are fused. draft_ids: the target's ids in the draft vocabulary, ascending. target:
    whose embedding is shared."""

    d2t: Tensor
    t2d: Tensor

    def __init__(
        self,
        config: Any,
        target: TargetView,
        *,
        hidden_layers: Sequence[int],
        draft_ids: Sequence[int],
        norm_before_residual: bool = False,
    ) -> None:
        super().__init__()
        self.config, self.target = config, target
        self.hidden_layers = tuple(hidden_layers)
        self.vocab_size, self.longest = target.vocab_size, context_limit(config)
        self.norm_before_residual = norm_before_residual
        self.fc = nn.Linear(len(self.hidden_layers) * target.width, config.hidden_size, bias=False)
        self.layers = nn.ModuleList([Eagle3Layer(config, norm_before_residual)])
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, len(draft_ids), bias=False)
        ids = torch.tensor(sorted(draft_ids), dtype=torch.long)
        self.register_buffer("d2t", ids - torch.arange(len(ids)))
        self.register_buffer(
            "t2d", torch.zeros(target.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
        )
        self._rotary = [rotary(config)]

    @classmethod
    def of(
        cls,
        target: TargetView,
        draft_ids: Sequence[int],
        *,
        hidden_layers: Sequence[int] | None = None,
        **changes: Any,
    ) -> Eagle3:
        """A fresh head for `target`, in float32; its output layer begins as the target's rows of
        the draft vocabulary. hidden_layers: which are fused, None for the published choice."""
        layers = fused_layers(target.num_layers) if hidden_layers is None else tuple(hidden_layers)
        made = cls(
            layer_config(target, **changes), target, hidden_layers=layers, draft_ids=draft_ids
        )
        with torch.no_grad():
            made.lm_head.weight.copy_(target.output_weight[sorted(draft_ids)])
        return made.to(target.device)

    def widened(self, draft_ids: Sequence[int]) -> Eagle3:
        """A copy with a draft vocabulary that holds this one's; the output rows of new ids begin as
        the target's."""
        ids = sorted(draft_ids)
        places = torch.searchsorted(torch.tensor(ids), self.draft_ids.cpu())
        made = Eagle3(
            self.config,
            self.target,
            hidden_layers=self.hidden_layers,
            draft_ids=ids,
            norm_before_residual=self.norm_before_residual,
        )
        own = {
            name: tensor
            for name, tensor in self.state_dict().items()
            if name not in ("lm_head.weight", "d2t", "t2d")
        }
        made.load_state_dict(own, strict=False)
        with torch.no_grad():
            made.lm_head.weight.copy_(self.target.output_weight[ids])
            made.lm_head.weight[places] = self.lm_head.weight.to(made.lm_head.weight)
        return made.to(self.target.device)

    @property
    def draft_ids(self) -> Tensor:
        """The target's id of each draft id [draft vocabulary]."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def fuse(self, hidden: Mapping[int, Any]) -> Tensor:
        states = [as_tensor(hidden[layer], self.fc.weight) for layer in self.hidden_layers]
        out: Tensor = self.fc(torch.cat(states, dim=-1))
        return out

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        embedded = self.target.embed(tokens).to(features.dtype)
        rotation = self._rotary[0](features, positions)
        out: Tensor = self.layers[0](embedded, features, rotation, attend)
        return out

    def logits(self, features: Tensor) -> Tensor:
        out: Tensor = self.lm_head(self.norm(features))
        return out

    def spread(self, logits: Tensor) -> Tensor:
        out = torch.full(
            (*logits.shape[:-1], self.vocab_size),
            -torch.inf,
            dtype=logits.dtype,
            device=logits.device,
        )
        return out.index_copy(-1, self.draft_ids, logits)


def fused_layers(num_layers: int) -> tuple[int, int, int]:
    """The published choice: hidden states entering layers 2, L // 2 and L - 3; the nearest there
    are in a shallow target."""
    low, middle, high = sorted((min(2, num_layers), num_layers // 2, max(num_layers - 3, 0)))
    return low, middle, high
