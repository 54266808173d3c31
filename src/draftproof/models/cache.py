"""One sequence's cache: the layer caches of every kind its model has, moved together; and what a
pass shows of it.

The length is one integer that the session moves after a pass has succeeded. Forgetting is asked of
every kind: what none has lost is forgotten by an assignment; where one has, the cache goes back to
the longest prefix that all can restore, and the session reads the tokens between again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from transformers.cache_utils import Cache, DummyLayer

from draftproof.models.caches.full import FullLayer, FullLayers, States
from draftproof.models.caches.hybrid import HybridFullLayer, HybridWindowLayer
from draftproof.models.caches.kinds import LayerKind
from draftproof.models.caches.protocol import LayerCache
from draftproof.models.caches.recurrent import RecurrentLayers, recurrent_layer
from draftproof.models.caches.window import ChunkLayers, Slack, WindowLayer, WindowLayers
from draftproof.models.layout import Layout

Masks = list["torch.Tensor | None"]
"""The mask of every layer cache, in the order of `KeyValueCache.parts`."""


class KeyValueCache:
    """kinds: of every layer. limit: the most tokens it may ever hold, or None. slack: shared by a
    model's sequences.

    `length`: live tokens. `layers`: what transformers is given. `parts`: one layer cache a kind;
    `part_of[i]` is the index of the one whose mask layer i reads."""

    def __init__(
        self, kinds: Sequence[LayerKind], limit: int | None, slack: Slack | None = None
    ) -> None:
        self.length = 0
        self.parts: list[LayerCache] = []
        self.part_of: list[int] = [0] * len(kinds)
        found: dict[int, Any] = {}
        self.slack = slack = slack or Slack()
        for attention, window in dict.fromkeys(
            (kind.attention, kind.window) for kind in kinds if kind.attention != "none"
        ):
            members = [
                i
                for i, kind in enumerate(kinds)
                if (kind.attention, kind.window) == (attention, window)
            ]
            own = [index for index in members if kinds[index].stores]
            for index in members:
                self.part_of[index] = len(self.parts)
            self.parts.append(
                _attention_layers(
                    attention, window, own, limit, slack, [kinds[index] for index in own]
                )
            )
            found.update(self.parts[-1].layers)
        states = {index: kind.num_states for index, kind in enumerate(kinds) if kind.num_states}
        if states:
            found.update(
                {
                    index: recurrent_layer(count)
                    for index, count in states.items()
                    if index not in found
                }
            )
            self.parts.append(RecurrentLayers({index: found[index] for index in states}))
        self.layers: list[Any] = [
            found[index] if index in found else DummyLayer() for index in range(len(kinds))
        ]

    def prepare(self, layout: Layout) -> None:
        """Make room for a pass after `length` tokens."""
        for part in self.parts:
            part.prepare(layout)

    def masks(self, dtype: torch.dtype, device: torch.device) -> Masks:
        """Of the pass prepared; see `LayerCache.mask`."""
        return [part.mask(dtype, device) for part in self.parts]

    def finish(self, length: int) -> None:
        """The pass has succeeded."""
        for part in self.parts:
            part.finish(length)
        self.length = length

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Of the last pass, keep the tokens at the ascending indices `path`; a prefix of it is kept
        by rolling back."""
        if list(path) == list(range(len(path))):
            self.rollback(start + len(path))
            return
        for part in self.parts:
            part.keep(start, path)
        self.length = start + len(path)

    def rollback(self, length: int) -> None:
        """Forget all but at most the first `length` tokens: fewer stay (see `length`) where a kind
        cannot restore them."""
        wanted = min(length, self.length)
        while (possible := min(part.restorable(wanted) for part in self.parts)) < wanted:
            wanted = possible
        for part in self.parts:
            part.rollback(wanted, length)
        self.length = wanted

    @torch.inference_mode()
    def fork(self) -> KeyValueCache:
        """A copy that shares nothing but the model's slack."""
        return deepcopy(self, {id(self.slack): self.slack})

    def entry_bytes(self) -> list[tuple[int, LayerCache]]:
        """Every part with the bytes that one of its entries takes in all layers; the cache must
        have read something."""
        found = []
        for part in self.parts:
            states = isinstance(part, RecurrentLayers)
            held = sum(size_of(layer, states) for layer in part.layers.values())
            found.append((held if states else held // max(part.num_entries(), 1), part))
        return found

    def drop(self) -> None:
        """Free every layer and break the reference cycles with them, so that memory goes at
        once."""
        for part in self.parts:
            part.drop()
        self.layers, self.parts = [], []
        self.length = 0


def _attention_layers(
    attention: str,
    window: int | None,
    indices: Sequence[int],
    limit: int | None,
    slack: Slack,
    kinds: Sequence[LayerKind],
) -> LayerCache:
    states = max((kind.num_states for kind in kinds), default=0)
    if attention == "full":
        make: Callable[..., Any] = (
            partial(HybridFullLayer, number_of_states=states) if states else FullLayer
        )
        return FullLayers(indices, limit, make_layer=make)
    assert window is not None
    make = partial(HybridWindowLayer, number_of_states=states) if states else WindowLayer
    return (ChunkLayers if attention == "chunk" else WindowLayers)(
        indices, window, slack, make_layer=make
    )


def size_of(layer: Any, states: bool) -> int:
    """Bytes of a layer's states, or of its keys and values."""
    tensors = (
        [*layer.conv_states.values(), *layer.recurrent_states.values()]
        if states
        else [layer.keys, layer.values]
    )
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


@dataclass
class Segment:
    """One sequence's part of a pass: its new tokens are `first` to `last` of the pass, `masks`
    those of its cache's parts."""

    cache: KeyValueCache
    layout: Layout
    first: int
    last: int
    masks: Masks
    _wide: dict[tuple[int, int, torch.device], torch.Tensor] = field(default_factory=dict)

    def mask(self, layer: int) -> torch.Tensor | None:
        """The mask [n, entries] that layer number `layer` reads by."""
        return self.masks[self.cache.part_of[layer]]

    def mask_for(self, layer: int, group: int, device: torch.device) -> torch.Tensor | None:
        """The mask for rows of `group` query heads laid side by side, [group * n, entries]; made
        once a pass and kind."""
        mask = self.mask(layer)
        if mask is None:
            return None
        key = self.cache.part_of[layer], group, device
        if key not in self._wide:
            num_tokens, width = mask.shape
            # with its padding
            whole = mask.as_strided((num_tokens, mask.stride(0)), (mask.stride(0), 1))
            self._wide[key] = whole.to(device).repeat(group, 1)[:, :width]
        return self._wide[key]


class Pass(Cache):
    """What the model is given as its cache for one pass over `segments`.

    With one segment, a layer's update returns the whole live keys and values, as any cache does.
    With several it keeps them for the attention function, which takes them by `take`, and hands the
    new ones back unused.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        super().__init__(layers=list(segments[0].cache.layers))
        self.segments = segments
        self.num_updates = 0
        self.num_attended = 0
        self.num_taken = 0
        self.layer = 0
        self.given: list[torch.Tensor] = []
        """The masks the model was given."""
        self._views: list[States] | None = None

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> States:
        self.num_updates += 1
        self.layer = layer_idx
        if len(self.segments) == 1:
            views = self.segments[0].cache.layers[layer_idx].update(key_states, value_states)
            self._views = [views]
            return views  # type: ignore[no-any-return]
        self._views = [
            part.cache.layers[layer_idx].update(
                key_states[:, :, part.first : part.last], value_states[:, :, part.first : part.last]
            )
            for part in self.segments
        ]
        return key_states, value_states

    def take(
        self, key: torch.Tensor, value: torch.Tensor
    ) -> Iterator[tuple[Segment, torch.Tensor, torch.Tensor]]:
        """Every segment with the keys and values to attend to, after a layer's update gave `key`
        and `value` to the model."""
        views, self._views = self._views, None
        if len(self.segments) == 1:
            self.num_taken += views is not None and key is views[0][0] and value is views[0][1]
            yield self.segments[0], key, value
            return
        assert views is not None, "a layer attends without an update of its own"
        for segment, (keys, values) in zip(self.segments, views, strict=True):
            yield segment, keys, values

    def gave(self, mask: torch.Tensor | None) -> bool:
        """Whether `mask` is one the model was given: the same memory, or its copy on another
        device."""
        if mask is None:
            return True
        return any(
            mask.data_ptr() == own.data_ptr()
            if mask.device == own.device
            else mask.shape == own.shape
            for own in self.given
        )

    @property
    def can_be_shared(self) -> bool:
        """After a pass of one segment: whether every layer read, through our attention, exactly
        what its update gave it."""
        shares = all(part.shares_passes for part in self.segments[0].cache.parts)
        return shares and 0 < self.num_updates == self.num_taken == len(self.layers)
