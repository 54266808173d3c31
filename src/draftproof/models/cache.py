"""Preallocated keys and values with absolute positions, through transformers' cache-layer extension point.

Every layer writes at `cache.length` and shows the model a view of the live part; no pass copies what is cached. The length is
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
    """Keys [1, heads, room, width] and values of one layer, views of `owner`'s storage; `owner.length` of them are live."""

    is_sliding = False

    def __init__(self, owner: KeyValueCache, index: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owner = owner
        self.index = index

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self.owner.claim("keys", self.index, key_states)
        self.values = self.owner.claim("values", self.index, value_states)
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> States:
        """Write the new states after the live ones; views of both together. The owner has reserved the room."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        start = self.owner.length
        end = start + key_states.shape[-2]
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.owner.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.owner.length

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:
        """`get_max_length` under the name that earlier versions of transformers ask for."""
        return -1


class KeyValueCache:
    """One sequence's layers. `length`: live tokens; `room`: allocated ones; `limit`: the most it may ever hold, or None.

    Layers of one shape share one tensor [layers, 1, heads, room, width] for keys and one for values, so that growing and
    compacting take a handful of operations, not a handful for each layer."""

    def __init__(self, num_layers: int, limit: int | None) -> None:
        self.layers = [GrowingLayer(self, index) for index in range(num_layers)]
        self.length = 0
        self.room = 0
        self.limit = limit
        self._slabs: dict[tuple[str, int | None], torch.Tensor] = {}  # index None: shared by all layers of its shape

    def reserve(self, length: int) -> None:
        """Have room for `length` tokens: half as much again as now, in whole blocks, within the limit."""
        if length <= self.room:
            return
        rounded = -(-max(length, self.room * 3 // 2) // BLOCK) * BLOCK
        self.room = rounded if self.limit is None else max(length, min(rounded, self.limit))
        for key, old in self._slabs.items():
            new = old.new_empty((*old.shape[:-2], self.room, old.shape[-1]))
            new[..., : self.length, :] = old[..., : self.length, :]
            self._slabs[key] = new
        for layer in self.layers:
            if layer.is_initialized:
                layer.keys, layer.values = self._view("keys", layer.index), self._view("values", layer.index)

    def claim(self, which: str, index: int, like: torch.Tensor) -> torch.Tensor:
        """Storage [1, heads, room, width] for layer `index`, of the shape and kind of `like` [1, heads, any, width]."""
        batch, heads, _, width = like.shape
        if (which, None) not in self._slabs:
            self._slabs[which, None] = like.new_empty((len(self.layers), batch, heads, self.room, width))
        shared = self._slabs[which, None]
        shape = (batch, heads, self.room, width)
        if shared.shape[1:] != shape or shared.dtype != like.dtype or shared.device != like.device:
            self._slabs[which, index] = like.new_empty((1, *shape))
        return self._view(which, index)

    def _view(self, which: str, index: int) -> torch.Tensor:
        own = self._slabs.get((which, index))
        return self._slabs[which, None][index] if own is None else own[0]

    @torch.inference_mode()
    def compact(self, start: int, kept: Sequence[int]) -> None:
        """Make the entries start + kept[i] contiguous from `start` on and set the length to their end. kept is ascending."""
        moved = next((i for i, place in enumerate(kept) if place != i), len(kept))
        if moved < len(kept):
            sources = torch.tensor([start + place for place in kept[moved:]])
            for slab in self._slabs.values():
                sources = sources.to(slab.device)
                slab[..., start + moved : start + len(kept), :] = slab.index_select(-2, sources)
        self.length = start + len(kept)

    def drop(self) -> None:
        """Free every layer and break the reference cycle with them, so that memory goes at once."""
        self.layers = []
        self._slabs = {}
        self.length = self.room = 0


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
