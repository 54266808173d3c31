"""What every kind of layer cache offers: the layers of one kind, of one sequence.

Lengths count tokens of the sequence. A pass is announced by `prepare`, written by the layers as the
model runs, and counts only once `finish` was called: a pass that failed leaves the cache as it was,
or says in `restorable` what it lost. What cannot be restored is read again by the session, so a
rollback is always exact and at worst slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from draftproof.models.layout import Layout


class LayerCache(Protocol):
    """name: the kind, as messages and `doctor` say it. layers: what transformers is given, by layer
    index. supports_trees: whether a pass may branch. shares_passes: whether several sequences can
    be read in one pass."""

    @property
    def name(self) -> str: ...
    @property
    def layers(self) -> Mapping[int, Any]: ...
    @property
    def supports_trees(self) -> bool: ...
    @property
    def shares_passes(self) -> bool: ...

    def prepare(self, layout: Layout) -> None:
        """Make room for a pass; its `start` is what `rollback` or `finish` said last, and
        restorable."""

    def mask(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
        """For the pass prepared: additive [tokens, entries shown], None when a token sees all, or a
        first chain is causal."""

    def finish(self, length: int) -> None:
        """The pass has succeeded; the sequence has `length` tokens now, laid out as they were
        read."""

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Of the last pass, which began at `start`, keep the tokens at the ascending indices
        `path`."""

    def restorable(self, length: int) -> int:
        """The longest prefix of the first `length` tokens that can be restored; 0 always can."""

    def rollback(self, length: int, asked: int) -> None:
        """Forget all but the first `length` tokens, which `restorable` has allowed. asked: what was
        wanted to stay, more than `length` where some kind could not restore it."""

    def entries_for(self, length: int) -> int:
        """Entries that a sequence of `length` tokens takes at most, per layer."""

    def num_entries(self) -> int:
        """Entries that storage is held for, per layer: tokens of keys and values, or states."""

    def drop(self) -> None:
        """Free everything."""
