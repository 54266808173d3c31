"""Sliding windows: a ring of window - 1 + slack entries, of which a mask shows every token its own
window.

Token number i of the sequence lies at place i modulo the size of the ring, so nothing is moved as
the window slides. The slack is what a rollback can take back: entries that left the window lately
are still there. It follows use (the widest pass that may be rolled back and the farthest rollback
seen, up to a cap) and is remembered for the sequences that come after. A rollback beyond it is no
error: `restorable` says 0, and the session reads its tokens again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from draftproof.models.caches.full import States
from draftproof.models.caches.slabs import BLOCK, SlabLayer, Slabs, moved
from draftproof.models.layout import Layout, ancestors, blank_mask


class Slack:
    """How many entries beyond the window a model's sequences keep: at least LEAST, at most MOST."""

    LEAST, MOST = 6, 64

    def __init__(self) -> None:
        self.tokens = self.LEAST

    def learn(self, tokens: int) -> None:
        """Rollbacks over this many tokens happen. What is beyond MOST is not provided for."""
        if tokens <= self.MOST:
            self.tokens = max(self.tokens, tokens)


class WindowLayers:
    """Layers of one sequence that see the last `window` tokens, the current one included."""

    supports_trees = True
    shares_passes = True

    def __init__(
        self,
        indices: Sequence[int],
        window: int,
        slack: Slack,
        *,
        make_layer: Callable[..., Any] | None = None,
    ) -> None:
        self.window, self.slack = window, slack
        self.length = 0
        self.written = (
            0  # one more than the highest token number written since the sequence was empty
        )
        self.oldest = 0  # the lowest token number that is still there
        # entries of token numbers from `length` up to here are left over from rejected drafts
        self.stale = 0
        self.slabs = Slabs(len(indices), zeroed=True)
        self.layers = {
            index: (make_layer or WindowLayer)(self, number) for number, index in enumerate(indices)
        }
        self.layout = Layout(0, 0)
        self.is_apart = (
            False  # whether the pass prepared is too wide for the ring, and read beside it
        )

    @property
    def name(self) -> str:
        return f"sliding window of {self.window}"

    @property
    def room(self) -> int:
        """Places of the ring."""
        return self.slabs.room

    def first_visible(self, position: int) -> int:
        """The first position that the token at `position` sees."""
        return max(0, position - self.window + 1)

    def visible(self, positions: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """bool [n, width]: whether the token at positions[i] may see position others[j], as far as
        the window goes."""
        return positions[:, None] - others[None, :] < self.window

    def prepare(self, layout: Layout) -> None:
        self.length, self.layout = layout.start, layout
        self.slack.learn(layout.count - layout.settled)
        most = max(
            self.room,
            self.window
            - 1
            + max(self.slack.tokens, layout.count if layout.parents is not None else 0),
        )
        self._make_room(min(layout.end, most), most)
        self.is_apart = layout.end > self.room and layout.count > self.room - self.window + 1
        self.written = max(self.written, layout.end)
        self.oldest = max(self.oldest, self.written - self.room)
        self._clear_stale()

    @torch.inference_mode()
    def _clear_stale(self) -> None:
        """Zero what rejected drafts left where the ring shows it: hidden by the mask, but NaN times
        0 would still be NaN."""
        if self.written > self.room and self.stale > self.layout.end:
            first = max(self.layout.end, self.stale - self.room)
            self.slabs.clear(self.places(first, self.stale))
        self.stale = self.layout.end

    def _make_room(self, needed: int, most: int) -> None:
        if needed <= self.room and (most == self.room or self.written <= self.room):
            return
        room = min(most, -(-max(needed, self.room * 3 // 2) // BLOCK) * BLOCK)
        live = range(self.oldest, self.written)
        if self.written <= self.room:
            places: Any = slice(0, self.written)
            self.slabs.resize(room, places, places)
        else:
            old, new = ([number % size for number in live] for size in (self.room, room))
            self.slabs.resize(room, old, new)
        self.slabs.views(self.layers.values())

    def places(self, first: int, last: int) -> slice | list[int]:
        """Where the tokens numbered first to last - 1 lie in the ring."""
        start = first % self.room if self.room else 0
        if start + last - first <= self.room:
            return slice(start, start + last - first)
        return [number % self.room for number in range(first, last)]

    def shown(self) -> torch.Tensor:
        """The token numbers [width] that stand in what `WindowLayer.update` returns for this pass,
        in that order."""
        if self.is_apart:
            return torch.arange(self.first_visible(self.layout.start), self.layout.end)
        if self.written <= self.room:
            return torch.arange(self.layout.end)
        newest = self.written - 1
        return newest - (newest - torch.arange(self.room)) % self.room

    def mask(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
        layout = self.layout
        if (
            layout.start == 0
            and layout.parents is None
            and self.first_visible(layout.end - 1) == 0
            and self._is_plain()
        ):
            return None  # causal, and nothing has left the window
        numbers = self.shown()
        own = torch.tensor(layout.positions())
        is_new = numbers >= layout.start
        node = (numbers - layout.start).clamp(0, layout.count - 1)
        positions = torch.where(is_new, own[node], numbers)
        seen = self.visible(own, positions) & (numbers < layout.end)
        family = (
            ancestors(layout.parents)[:, node]
            if layout.parents is not None
            else numbers[None] <= own[:, None]
        )
        seen &= family | ~is_new
        if layout.count == 1 and bool(seen.all()):
            return None
        mask = blank_mask(layout.count, len(numbers), 0, dtype, device)
        return mask.masked_fill_(~seen.to(device), torch.finfo(dtype).min)

    def _is_plain(self) -> bool:
        """Whether the pass shows its own tokens only, in order."""
        return self.is_apart or self.written <= self.room

    def finish(self, length: int) -> None:
        self.length = length

    @torch.inference_mode()
    def keep(self, start: int, path: Sequence[int]) -> None:
        sources, destinations = moved(list(path))
        if sources:
            self.slabs.move(
                *(
                    [(start + place) % self.room for place in some]
                    for some in (sources, destinations)
                )
            )
        self.length = start + len(path)

    def restorable(self, length: int) -> int:
        return length if self.first_visible(length) >= self.oldest else 0

    def rollback(self, length: int, asked: int) -> None:
        if asked > 0:
            self.slack.learn(self.length - asked)
        self.length = length
        if length == 0:
            self.written = self.oldest = self.stale = 0

    def entries_for(self, length: int) -> int:
        return min(-(-(length * 3 // 2) // BLOCK) * BLOCK, self.window - 1 + Slack.MOST)

    def num_entries(self) -> int:
        return self.room

    def drop(self) -> None:
        self.layers = {}
        self.slabs.drop()
        self.length = self.written = self.oldest = self.stale = 0


class ChunkLayers(WindowLayers):
    """Chunked attention: a token sees its own chunk of `window` positions, from the chunk's
    beginning."""

    @property
    def name(self) -> str:
        return f"chunks of {self.window}"

    def first_visible(self, position: int) -> int:
        return position // self.window * self.window

    def visible(self, positions: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return positions[:, None] // self.window == others[None, :] // self.window


class WindowLayer(SlabLayer):
    """Keys [1, heads, room, width] and values of one layer, views of `owner`'s ring."""

    is_sliding = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> States:
        """Write the new states; what this pass sees, in the order of `owner.shown()`."""
        keys, values = self.claimed(key_states, value_states)
        if self.owner.is_apart:
            return self._beside(keys, key_states), self._beside(values, value_states)
        layout = self.owner.layout
        places = self.owner.places(layout.start, layout.end)
        keys[:, :, places], values[:, :, places] = key_states, value_states
        shown = layout.end if self.owner.written <= self.owner.room else self.owner.room
        return keys[:, :, :shown], values[:, :, :shown]

    def _beside(self, ring: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """The window before the pass with the pass's tokens after it, in a tensor of its own; the
        ring gets the last ones."""
        owner, layout = self.owner, self.owner.layout
        before = ring[:, :, owner.places(owner.first_visible(layout.start), layout.start)]
        both = torch.cat([before, new], dim=2)
        stays = min(layout.count, owner.room)
        ring[:, :, owner.places(layout.end - stays, layout.end)] = new[:, :, -stays:]
        return both
