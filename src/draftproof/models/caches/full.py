"""Full attention: every token's keys and values are kept, so forgetting is an assignment.

Layers write at the live length and show the model a view of the live part; no pass copies what is
cached. Room grows geometrically in blocks, so memory follows use and not the context limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from draftproof.models.caches.slabs import BLOCK, SlabLayer, Slabs, moved
from draftproof.models.layout import Layout, ancestors, blank_mask

States = tuple[torch.Tensor, torch.Tensor]
"""Keys and values, each [1, heads, tokens, width]."""


class FullLayers:
    """The full-attention layers of one sequence. `limit`: the most tokens it may ever hold, or
    None."""

    name = "full attention"
    supports_trees = True
    shares_passes = True

    def __init__(
        self,
        indices: Sequence[int],
        limit: int | None,
        *,
        make_layer: Callable[..., Any] | None = None,
    ) -> None:
        self.limit = limit
        self.length = 0
        self.slabs = Slabs(len(indices))
        self.layers = {
            index: (make_layer or FullLayer)(self, number) for number, index in enumerate(indices)
        }
        self._layout = Layout(0, 0)

    @property
    def room(self) -> int:
        """Tokens that there is storage for."""
        return self.slabs.room

    def prepare(self, layout: Layout) -> None:
        self.length, self._layout = layout.start, layout
        if layout.end > self.room:
            rounded = -(-max(layout.end, self.room * 3 // 2) // BLOCK) * BLOCK
            room = rounded if self.limit is None else max(layout.end, min(rounded, self.limit))
            live = slice(0, self.length)
            self.slabs.resize(room, live, live)
            self.slabs.views(self.layers.values())

    def mask(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
        return additive_mask(self._layout, dtype, device)

    def finish(self, length: int) -> None:
        self.length = length

    @torch.inference_mode()
    def keep(self, start: int, path: Sequence[int]) -> None:
        sources, destinations = moved(list(path))
        if sources:
            self.slabs.move(
                [start + place for place in sources], [start + place for place in destinations]
            )
        self.length = start + len(path)

    def restorable(self, length: int) -> int:
        return length

    def rollback(self, length: int, asked: int) -> None:
        self.length = length

    def entries_for(self, length: int) -> int:
        room = -(-(length * 3 // 2) // BLOCK) * BLOCK
        return room if self.limit is None else max(length, min(room, self.limit))

    def num_entries(self) -> int:
        return self.room

    def drop(self) -> None:
        self.layers = {}  # breaks the reference cycle, so that memory goes at once
        self.slabs.drop()
        self.length = 0


class FullLayer(SlabLayer):
    """Keys [1, heads, room, width] and values of one layer, views of `owner`'s storage;
    `owner.length` of them are live."""

    is_sliding = False

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> States:
        """Write the new states after the live ones; views of both together. The owner has reserved
        the room."""
        keys, values = self.claimed(key_states, value_states)
        start = self.owner.length
        end = start + key_states.shape[-2]
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        return keys[:, :, :end], values[:, :, :end]


def additive_mask(layout: Layout, dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
    """[n, start + n]: 0 where a token may look, the lowest number of `dtype` elsewhere; None where
    no mask is needed.

    What was read before is visible to all. Additive, because `eager` and `sdpa` both take that and
    no layer has to convert it."""
    if layout.count == 1 or (layout.parents is None and layout.start == 0):
        return None
    low = torch.finfo(dtype).min
    if layout.parents is None:
        return blank_mask(layout.count, layout.end, low, dtype, device).triu_(layout.start + 1)
    mask = blank_mask(layout.count, layout.end, 0, dtype, device)
    mask[:, layout.start :].masked_fill_(~ancestors(layout.parents).to(device), low)
    return mask
