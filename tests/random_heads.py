"""Draft heads with random weights over a target of 8 tokens and 4-wide hidden states: for what must
hold whatever a head thinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.medusa import Medusa, MedusaConfig
from draftproof.heads.target import TargetView

VOCAB, WIDTH, LAYERS = 8, 4, 3


def random_state(prefix: tuple[int, ...], layer: int) -> Any:
    """The hidden state of a layer after a prefix, for TableModel(hidden=...)."""
    return np.random.default_rng([layer, *prefix]).normal(size=WIDTH)


def random_head(method: str) -> Any:
    generator = torch.Generator().manual_seed(1)
    embedding = torch.randn(VOCAB, WIDTH, generator=generator)
    output = torch.randn(VOCAB, WIDTH, generator=generator)
    view = TargetView("toy", WIDTH, VOCAB, LAYERS, lambda ids: embedding[ids], output)
    shape: dict[str, Any] = dict(
        num_attention_heads=2, num_key_value_heads=1, intermediate_size=6, head_dim=2
    )
    shape |= {"rms_norm_eps": 1e-6, "max_position_embeddings": 256}
    if method == "medusa":
        head: Any = Medusa(MedusaConfig(WIDTH, VOCAB, LAYERS, num_heads=4))
    elif method == "eagle":
        head = Eagle.of(view, **shape)
    else:
        head = Eagle3.of(view, (0, 2, 3, 5, 7), **shape)
    with torch.no_grad():
        for weights in head.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator) * 0.7)
    return head.eval().requires_grad_(False)
