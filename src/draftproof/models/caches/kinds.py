"""What kind of cache every layer of a model needs, read off its config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from draftproof.errors import UnsupportedModelError

Attention = Literal["full", "window", "chunk", "none"]

FULL = {"full_attention", "attention", "hybrid"}
WINDOW = {"sliding_attention", "hybrid_sliding"}
CHUNK = {"chunked_attention"}
RECURRENT = {"linear_attention", "conv", "mamba", "mamba2"}
HYBRID = {"hybrid", "hybrid_sliding"}
NONE = {"dummy"}
"""Layer types in transformers' words. "dummy": a layer without a past of its own."""


@dataclass(frozen=True)
class LayerKind:
    """attention: the kind of its keys and values. window: tokens it sees, with "window" and
    "chunk". num_states: convolution and recurrent states, 0 for none. stores: False for a layer
    that reads another's keys. layer_type: transformers' word for it."""

    attention: Attention
    window: int | None = None
    num_states: int = 0
    stores: bool = True
    layer_type: str = "full_attention"

    def __str__(self) -> str:
        """As messages and `doctor` say it."""
        said = {
            "full": "full attention",
            "window": f"sliding window of {self.window}",
            "chunk": f"chunks of {self.window}",
        }
        parts = (
            []
            if self.attention == "none"
            else [said[self.attention] + ("" if self.stores else " (another layer's)")]
        )
        return " and ".join(parts + ["recurrent state"] * (self.num_states > 0)) or "no past"


def layer_kinds(config: Any, limit: int | None) -> list[LayerKind]:
    """The kind of every layer; UnsupportedModelError names the first layer whose past cannot be
    rolled back.

    limit: the most tokens a sequence will hold; a window at least as wide never drops anything and
    is full attention."""
    given = layer_types(config)
    declared = list(getattr(config, "layer_types", None) or given)
    return [_kind(config, index, kind, declared[index], limit) for index, kind in enumerate(given)]


def _kind(config: Any, index: int, layer_type: str, declared: str, limit: int | None) -> LayerKind:
    stores = layer_type not in NONE or declared in NONE | {"moe", "mlp"}
    word = layer_type if stores else declared
    num_states = (
        int(getattr(config, "number_of_conv_states", 1)) if word in RECURRENT | HYBRID else 0
    )
    if word in NONE | RECURRENT | {"moe", "mlp"}:
        return LayerKind("none", None, num_states, stores, declared)
    if word in FULL:
        return LayerKind("full", None, num_states, stores, declared)
    if word in WINDOW | CHUNK:
        window = _window(
            config, index, "attention_chunk_size" if word in CHUNK else "sliding_window"
        )
        if window is not None and (limit is None or window < limit):
            return LayerKind(
                "chunk" if word in CHUNK else "window", window, num_states, stores, declared
            )
        if window is not None:
            return LayerKind("full", None, num_states, stores, declared)
    raise UnsupportedModelError(
        f"layer {index} of {type(config).__name__} is {word}: its past cannot be rolled "
        "back by length nor restored from a"
        " copy here, so a rejected draft would stay in it"
    )


def _window(config: Any, index: int, key: str) -> int | None:
    """The window of one layer, which a config may say for every layer apart."""
    layers = getattr(config, "per_layer_config", None)
    window = getattr(layers[index] if layers else config, key, None)
    return int(window) if window else None


def layer_types(config: Any) -> list[str]:
    """The type of every layer, in transformers' own words."""
    # GPT-Neo keeps its windows under another name
    if "local" in (getattr(config, "attention_layers", None) or ()):
        return [
            "full_attention" if kind == "global" else "local attention"
            for kind in config.attention_layers
        ]
    if getattr(config, "layer_types", None) is None and getattr(config, "layers_block_type", None):
        return list(config.layers_block_type)  # RecurrentGemma says it in words of its own
    try:
        from transformers.cache_utils import get_layer_types_and_kwargs
    except ImportError:
        declared = getattr(config, "layer_types", None) or getattr(
            config, "layers_block_type", None
        )
        if declared:
            return list(declared)
        kind = "sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"
        return [kind] * config.num_hidden_layers
    return list(get_layer_types_and_kwargs(config)[0])
