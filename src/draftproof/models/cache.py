"""Preallocated keys and values with absolute positions, through transformers' cache-layer extension point.

Every layer writes at `cache.length` and shows the model a view of the live part; nothing is copied by a pass. The length is
one integer that the session moves after a pass has succeeded, so forgetting tokens is an assignment and a failed pass leaves
no trace. Room grows geometrically in blocks, so memory follows use and not the context limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

BLOCK = 256
"""Tokens by which room is rounded up."""

States = tuple[torch.Tensor, torch.Tensor]
"""Keys and values, each [1, heads, tokens, width]."""


class GrowingLayer(CacheLayerMixin):
    """Keys [1, heads, room, width] and values of one layer; `owner.length` of them are live between passes."""

    is_sliding = False

    def __init__(self, owner: KeyValueCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owner = owner

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        room = self.owner.room_for(self.owner.length + key_states.shape[-2])
        self.keys, self.values = _with_room(key_states, room), _with_room(value_states, room)
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> States:
        """Write the new states after the live ones; views of both together."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.owner.length
        end = start + key_states.shape[-2]
        keys, values = self.held()
        if end > keys.shape[-2]:
            keys, values = self._grow(end)
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        return keys[:, :, :end], values[:, :, :end]

    def held(self) -> States:
        """All room of the layer, live or not."""
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def _grow(self, length: int) -> States:
        room, live = self.owner.room_for(length), self.owner.length
        old_keys, old_values = self.held()
        self.keys, self.values = _with_room(old_keys, room), _with_room(old_values, room)
        self.keys[:, :, :live] = old_keys[:, :, :live]
        self.values[:, :, :live] = old_values[:, :, :live]
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.owner.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.owner.length

    def get_max_length(self) -> int:
        return -1


def _with_room(like: torch.Tensor, room: int) -> torch.Tensor:
    return like.new_empty((*like.shape[:-2], room, like.shape[-1]))


class KeyValueCache:
    """One sequence's layers. `length`: live tokens; `limit`: the most it may ever hold, or None."""

    def __init__(self, num_layers: int, limit: int | None) -> None:
        self.layers = [GrowingLayer(self) for _ in range(num_layers)]
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
                for held in layer.held() if layer.is_initialized else ():
                    sources = sources.to(held.device)
                    held[:, :, start + moved : start + len(kept)] = held.index_select(-2, sources)
        self.length = start + len(kept)

    def drop(self) -> None:
        """Free every layer and break the reference cycle with them, so that memory goes at once."""
        self.layers = []
        self.length = 0


@dataclass
class Segment:
    """One sequence's part of a pass: its new tokens are `first` to `last` of the pass, `mask` [n, length + n] or None."""

    cache: KeyValueCache
    first: int
    last: int
    mask: torch.Tensor | None
    _masks: dict[tuple[int, torch.device], torch.Tensor] = field(default_factory=dict)

    def mask_for(self, group: int, device: torch.device) -> torch.Tensor | None:
        """The mask for rows of `group` query heads laid side by side, [group * n, length + n]; made once a pass."""
        if self.mask is None:
            return None
        if (group, device) not in self._masks:
            num_tokens, width = self.mask.shape
            whole = self.mask.as_strided((num_tokens, self.mask.stride(0)), (self.mask.stride(0), 1))  # with its padding
            self._masks[group, device] = whole.to(device).repeat(group, 1)[:, :width]
        return self._masks[group, device]


class Pass(Cache):
    """What the model is given as its cache for one pass over `segments`.

    With one segment, a layer's update returns the whole live keys and values, as any cache does. With several it keeps them
    for the attention function, which takes them by `take`, and hands the new ones back unused.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        super().__init__(layers=list(segments[0].cache.layers))
        self.segments = segments
        self.num_updates = 0
        self.num_taken = 0
        self._views: list[States] | None = None

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> States:
        self.num_updates += 1
        if len(self.segments) == 1:
            views = self.segments[0].cache.layers[layer_idx].update(key_states, value_states)
            self._views = [views]
            return views
        self._views = [
            part.cache.layers[layer_idx].update(
                key_states[:, :, part.first : part.last], value_states[:, :, part.first : part.last]
            )
            for part in self.segments
        ]
        return key_states, value_states

    def take(self, key: torch.Tensor, value: torch.Tensor) -> Iterator[tuple[Segment, torch.Tensor, torch.Tensor]]:
        """Every segment with the keys and values to attend to, after a layer's update gave `key` and `value` to the model."""
        views, self._views = self._views, None
        if len(self.segments) == 1:
            self.num_taken += views is not None and key is views[0][0] and value is views[0][1]
            yield self.segments[0], key, value
            return
        assert views is not None, "a layer attends without an update of its own"
        for segment, (keys, values) in zip(self.segments, views, strict=True):
            yield segment, keys, values

    @property
    def can_be_shared(self) -> bool:
        """After a pass of one segment: whether every layer read, through our attention, exactly what its update gave it."""
        return 0 < self.num_updates == self.num_taken == len(self.layers)
