"""The attention of our passes: every sequence over its own cache and by its own mask, grouped heads
without copies.

transformers' `sdpa` repeats keys and values for every query head of a group, so a pass copies the
cache it reads. Registered here is an attention function that lays the query heads of a group side
by side as rows instead, which is the same product over a view. (Measured on one CPU core, 1,000
tokens of context, SmolLM2's shapes in bf16: 1.3 ms -> 0.12 ms a layer for one token, 0.54 -> 0.23
for eight.) It also lets several sequences share a pass: each reads its own cache, nothing is
padded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from draftproof.models.cache import Pass, Segment

IMPLEMENTATION = "draftproof_sdpa"

_current_pass: ContextVar[Pass | None] = ContextVar("current_pass", default=None)


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls in every layer: query [1, heads, n, width] over the caches of the
    current pass.

    Outside a pass of ours, with an option this does not know, or with a mask that the model made
    out of ours (or of nothing), it is transformers' `sdpa`."""
    current = _current_pass.get()
    if current is not None:
        current.num_attended += 1
    special = kwargs.get("position_bias") is not None or kwargs.get("softcap") is not None
    if current is None or special or not current.gave(attention_mask):
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return output, None
    layer = getattr(module, "layer_idx", None)
    layer = current.layer if layer is None else layer
    parts = [
        _attend(query[:, :, segment.first : segment.last], keys, values, segment, layer, scaling)
        for segment, keys, values in current.take(key, value)
    ]
    output = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
    return output.transpose(1, 2).contiguous(), None


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    segment: Segment,
    layer: int,
    scaling: float | None,
) -> torch.Tensor:
    """Attention [1, heads, n, width] of one sequence's new tokens over its own cache."""
    heads, num_tokens = query.shape[1:3]
    group = heads // keys.shape[1]
    if num_tokens > 1 and segment.mask(layer) is None:
        return scaled_dot_product_attention(
            query, keys, values, is_causal=True, scale=scaling, enable_gqa=group > 1
        )
    rows = query.reshape(1, keys.shape[1], group * num_tokens, query.shape[-1])
    mask = segment.mask_for(layer, group, query.device)
    output = scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scaling)
    return output.reshape(1, heads, num_tokens, values.shape[-1])


@contextmanager
def attending(current: Pass, configs: Iterable[Any]) -> Iterator[None]:
    """Let `current` be read by `grouped_attention` in the models of `configs` that run `sdpa`;
    their configs are restored.

    Another thread that runs the same model meanwhile gets `sdpa` by another name."""
    changed = [config for config in configs if config._attn_implementation == "sdpa"]
    token = _current_pass.set(current)
    try:
        for config in changed:
            config._attn_implementation_internal = IMPLEMENTATION
        yield
    finally:
        _current_pass.reset(token)
        for config in changed:
            config._attn_implementation_internal = "sdpa"


AttentionInterface.register(IMPLEMENTATION, grouped_attention)
AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
