"""Layers that have both: keys and values of an attention part, and the states of a recurrent part
beside it."""

from __future__ import annotations

from typing import Any

from transformers.cache_utils import LinearAttentionLayer

from draftproof.models.caches.full import FullLayer
from draftproof.models.caches.window import WindowLayer


class HybridFullLayer(LinearAttentionLayer, FullLayer):  # type: ignore[override]
    """`update` and sizes are the attention part's, `update_conv_state` and its like the recurrent
    part's."""

    attention_part: Any = FullLayer

    def __init__(self, owner: Any, number: int, number_of_states: int = 1) -> None:
        self.attention_part.__init__(self, owner, number)
        LinearAttentionLayer.__init__(self, number_of_states=number_of_states)

    def lazy_initialization(self, *states: Any, **named: Any) -> None:
        """Keys and values come by position, states by name."""
        (self.attention_part if states else LinearAttentionLayer).lazy_initialization(
            self, *states, **named
        )


class HybridWindowLayer(LinearAttentionLayer, WindowLayer):  # type: ignore[override]
    """The same with a sliding window."""

    attention_part: Any = WindowLayer
    __init__ = HybridFullLayer.__init__
    lazy_initialization = HybridFullLayer.lazy_initialization
