"""Recurrent layers: the past is folded into a state, which cannot be cut by length, so states are
kept and tokens read again.

Before every pass the state is copied; a rollback goes to the last copy at or before the length
wanted, and the session reads the tokens between again. Copies are thinned as they grow old: the
price of a rollback is in proportion to how far it goes, and memory stays at KEPT states a layer. No
trees: one state cannot follow two branches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import LinearAttentionLayer

from draftproof.models.layout import Layout

KEPT = 8
"""States kept of every layer, beside the live one."""


class RecurrentLayers:
    """Layers of one sequence with convolution or recurrent states, by index: of `recurrent_layer`,
    or hybrid ones."""

    name = "recurrent state"
    supports_trees = False
    shares_passes = False

    def __init__(self, layers: Mapping[int, Any]) -> None:
        self.layers: dict[int, Any] = dict(layers)
        self.length = 0
        self._live: int | None = (
            0  # the length whose state the layers hold; None while a pass runs, or after one failed
        )
        self._kept: dict[int, list[LayerState]] = {}

    def prepare(self, layout: Layout) -> None:
        if layout.parents is not None:
            raise AssertionError("a recurrent layer was given a tree")
        self.length = layout.start
        if self._live != layout.start:
            self._load(layout.start)
        if layout.start > 0 and layout.start not in self._kept:
            self._kept[layout.start] = [LayerState.of(layer) for layer in self.layers.values()]
            self._thin()
        self._live = None

    def _load(self, length: int) -> None:
        if length == 0:
            for layer in self.layers.values():
                forget(layer)
            return
        for layer, state in zip(self.layers.values(), self._kept[length], strict=True):
            state.load(layer)

    def _thin(self) -> None:
        """Drop the kept state that is missed least: the gap it leaves is smallest against its
        distance from the end."""
        if len(self._kept) <= KEPT:
            return
        lengths = sorted(self._kept)
        before, after = [0, *lengths[:-2]], lengths[1:]
        gaps = [
            (high - low) / (self.length - at + 1)
            for low, at, high in zip(before, lengths[:-1], after, strict=True)
        ]
        del self._kept[lengths[gaps.index(min(gaps))]]

    def mask(self, dtype: torch.dtype, device: torch.device) -> None:
        return None

    def finish(self, length: int) -> None:
        self.length = self._live = length

    def keep(self, start: int, path: Sequence[int]) -> None:
        raise AssertionError("what a recurrent layer has read is kept by rolling back")

    def restorable(self, length: int) -> int:
        if self._live == length:
            return length
        return max((kept for kept in self._kept if kept <= length), default=0)

    def rollback(self, length: int, asked: int) -> None:
        self.length = length
        self._kept = {kept: states for kept, states in self._kept.items() if kept <= length}
        if self._live is not None and self._live > length:
            self._live = None

    def entries_for(self, length: int) -> int:
        return 1 + min(KEPT, length)

    def num_entries(self) -> int:
        return 1 + len(self._kept)

    def drop(self) -> None:
        self.layers, self._kept = {}, {}
        self.length, self._live = 0, 0


@dataclass(frozen=True)
class LayerState:
    """A copy of one layer's states; models write to the live ones in place."""

    conv: dict[int, torch.Tensor | None]
    recurrent: dict[int, torch.Tensor | None]
    has_previous: dict[int, bool]

    @classmethod
    def of(cls, layer: Any) -> LayerState:
        return cls(
            copied(layer.conv_states),
            copied(layer.recurrent_states),
            dict(layer.has_previous_state),
        )

    def load(self, layer: Any) -> None:
        layer.conv_states, layer.recurrent_states = copied(self.conv), copied(self.recurrent)
        layer.is_conv_states_initialized = {
            number: state is not None for number, state in self.conv.items()
        }
        layer.is_recurrent_states_initialized = {
            number: state is not None for number, state in self.recurrent.items()
        }
        layer.has_previous_state = dict(self.has_previous)


def recurrent_layer(number_of_states: int) -> Any:
    """A layer with states alone, as transformers has it."""
    return LinearAttentionLayer(number_of_states=number_of_states)


def copied(states: dict[int, torch.Tensor | None]) -> dict[int, torch.Tensor | None]:
    return {number: None if state is None else state.clone() for number, state in states.items()}


def forget(layer: Any) -> None:
    """Put the layer where it was before its first token; its tensors are made anew by the next."""
    numbers = range(layer.number_of_states)
    layer.conv_states, layer.recurrent_states = dict.fromkeys(numbers), dict.fromkeys(numbers)
    layer.is_conv_states_initialized = dict.fromkeys(numbers, False)
    layer.is_recurrent_states_initialized = dict.fromkeys(numbers, False)
    layer.has_previous_state = dict.fromkeys(numbers, False)
