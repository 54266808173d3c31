"""Preallocated keys and values with absolute positions, through transformers' cache-layer extension point.

Every layer writes at `cache.length` and shows the model a view of the live part; nothing is copied by a pass. The length is
one integer that the session moves after a pass has succeeded, so forgetting tokens is an assignment and a failed pass leaves
no trace. Room grows geometrically in blocks, so memory follows use and not the context limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

BLOCK = 256
"""Tokens by which room is rounded up."""


class GrowingLayer(CacheLayerMixin):
    """Keys [1, heads, room, width] and values of one layer; `owner.length` of them are live between passes."""

    is_sliding = False

    def __init__(self, owner: KeyValueCache) -> None:
        super().__init__()
        self.owner = owner

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        room = self.owner.room_for(key_states.shape[-2])
        self.keys = key_states.new_empty((*key_states.shape[:-2], room, key_states.shape[-1]))
        self.values = value_states.new_empty((*value_states.shape[:-2], room, value_states.shape[-1]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new states after the live ones; views of both together."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.owner.length
        end = start + key_states.shape[-2]
        if end > self.keys.shape[-2]:
            self._grow(end)
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _grow(self, length: int) -> None:
        room, live = self.owner.room_for(length), self.owner.length
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_empty((*old.shape[:-2], room, old.shape[-1]))
            new[:, :, :live] = old[:, :, :live]
            setattr(self, name, new)

    def move(self, target: slice, sources: torch.Tensor) -> None:
        """Copy the entries at positions `sources` [n] to `target`, through a copy, so that they may overlap."""
        for held in (self.keys, self.values):
            held[:, :, target] = held.index_select(-2, sources.to(held.device))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.owner.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.owner.length

    def get_max_length(self) -> int:
        return -1


class KeyValueCache(Cache):
    """One sequence's layers. `length`: live tokens; `limit`: the most it may ever hold, or None."""

    def __init__(self, num_layers: int, limit: int | None) -> None:
        super().__init__(layers=[GrowingLayer(self) for _ in range(num_layers)])
        self.length = 0
        self.limit = limit

    def room_for(self, length: int) -> int:
        """Tokens to allocate when `length` are needed: half as much again as now, in whole blocks, within the limit."""
        wanted = max(length, self.length * 3 // 2)
        rounded = -(-wanted // BLOCK) * BLOCK
        return rounded if self.limit is None else max(length, min(rounded, self.limit))

    @torch.inference_mode()
    def compact(self, start: int, kept: Sequence[int]) -> None:
        """Make the entries start + kept[i] contiguous from `start` on and set the length to their end. kept is ascending."""
        moved = next((i for i, place in enumerate(kept) if place != i), len(kept))
        if moved < len(kept):
            sources = torch.tensor([start + place for place in kept[moved:]])
            for layer in self.layers:
                if layer.is_initialized:
                    layer.move(slice(start + moved, start + len(kept)), sources)
        self.length = start + len(kept)

    def drop(self) -> None:
        """Free every layer and break the reference cycle with them, so that memory goes at once."""
        self.layers = []
        self.length = 0
