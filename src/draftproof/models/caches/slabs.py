"""Storage for the keys and values of several layers, handed out as views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers.cache_utils import CacheLayerMixin

BLOCK = 256
"""Tokens by which room is rounded up."""


class Slabs:
    """Layers of one shape share one tensor [layers, 1, heads, room, width] for keys and one for
    values, so that growing and moving take a handful of operations, not a handful for each
    layer."""

    def __init__(self, num_layers: int, *, zeroed: bool = False) -> None:
        self.num_layers = num_layers
        # entries shown before they were written must hold numbers, not whatever memory holds
        self.zeroed = zeroed
        self.room = 0
        self._slabs: dict[
            tuple[str, int | None], torch.Tensor
        ] = {}  # number None: shared by all layers of its shape

    def claim(self, which: str, number: int, like: torch.Tensor) -> torch.Tensor:
        """Storage [1, heads, room, width] for the layer `number`, of the shape and kind of `like`
        [1, heads, any, width]."""
        batch, heads, _, width = like.shape
        if (which, None) not in self._slabs:
            self._slabs[which, None] = self._new(
                like, (self.num_layers, batch, heads, self.room, width)
            )
        shared = self._slabs[which, None]
        shape = (batch, heads, self.room, width)
        if shared.shape[1:] != shape or shared.dtype != like.dtype or shared.device != like.device:
            self._slabs[which, number] = self._new(like, (1, *shape))
        return self.view(which, number)

    def view(self, which: str, number: int) -> torch.Tensor:
        """The storage claimed before."""
        own = self._slabs.get((which, number))
        return self._slabs[which, None][number] if own is None else own[0]

    def resize(self, room: int, old: Any, new: Any) -> None:
        """Have storage for `room` tokens, with the entries at `old` (a slice or places) at `new`;
        views must be taken anew."""
        self.room = room
        for key, slab in self._slabs.items():
            grown = self._new(slab, (*slab.shape[:-2], room, slab.shape[-1]))
            grown[..., new, :] = slab[..., old, :]
            self._slabs[key] = grown

    def _new(self, like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return like.new_zeros(shape) if self.zeroed else like.new_empty(shape)

    def clear(self, places: Any) -> None:
        """Zero the entries at `places`."""
        for slab in self._slabs.values():
            slab[..., places, :] = 0

    def move(self, sources: list[int], destinations: list[int]) -> None:
        """Copy the entries at `sources` to `destinations`; the two may overlap."""
        for slab in self._slabs.values():
            where = torch.tensor(sources, device=slab.device)
            first, last = destinations[0], destinations[-1]
            target: Any = slice(first, last + 1)
            if last - first + 1 != len(destinations):
                target = torch.tensor(destinations, device=slab.device)
            slab[..., target, :] = slab.index_select(-2, where)

    def views(self, layers: Iterable[Any]) -> None:
        """Give every initialised layer its storage again, after it was moved."""
        for layer in layers:
            if layer.is_initialized:
                layer.keys = self.view("keys", layer.number)
                layer.values = self.view("values", layer.number)

    def drop(self) -> None:
        self._slabs = {}
        self.room = 0


class SlabLayer(CacheLayerMixin):
    """One layer whose keys [1, heads, room, width] and values are views of its owner's slabs: what
    transformers asks of it."""

    owner: Any

    def __init__(self, owner: Any, number: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owner = owner
        self.number = number

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self.owner.slabs.claim("keys", self.number, key_states)
        self.values = self.owner.slabs.claim("values", self.number, value_states)
        self.is_initialized = True

    def claimed(
        self, key_states: torch.Tensor, value_states: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The layer's storage for states of this shape."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.owner.length + query_length, 0

    def get_seq_length(self) -> int:
        return int(self.owner.length)

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:
        """`get_max_length` under the name that earlier versions of transformers ask for."""
        return -1


def moved(path: list[int]) -> tuple[list[int], list[int]]:
    """Which entries of `path` have to move to make it contiguous from 0, and where to."""
    first = next((i for i, place in enumerate(path) if place != i), len(path))
    return path[first:], list(range(first, len(path)))
