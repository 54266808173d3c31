"""Which models can be decoded exactly here: refusals by name when a model is loaded, and one check that it takes our cache.

A draft is forgotten by cutting the cache at a length. That is only right where every layer is full attention over stored keys
and values; a layer that folds the past into a state, or drops keys once a window is full, is refused with its name.
"""

from __future__ import annotations

from typing import Any

from draftproof.errors import UnsupportedModelError

FULL_ATTENTION = {"full_attention", "attention", "dummy"}
"""Layer types whose past can be cut at any length ("dummy": a layer without a past of its own)."""

WINDOWED = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}


def check_config(config: Any, max_length: int | None = None) -> None:
    """Raise UnsupportedModelError for an encoder-decoder, a multimodal model, or a layer whose past cannot be cut by length.

    max_length: the most tokens a session will hold; a window at least as wide never drops anything and is allowed."""
    kind = type(config).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{kind} is an encoder-decoder model; only decoder-only language models can be used")
    if config.get_text_config(decoder=True) is not config:
        raise UnsupportedModelError(f"{kind} takes more than text; only text-only decoders can be used")
    limit = max_length if max_length is not None else context_limit(config)
    for index, layer_type in enumerate(layer_types(config)):
        if layer_type in FULL_ATTENTION:
            continue
        window = getattr(config, WINDOWED.get(layer_type, ""), None)
        if window is None:
            raise UnsupportedModelError(
                f"layer {index} of {kind} is {layer_type}: its state cannot be rolled back by length,"
                " so a rejected draft would stay in it"
            )
        if limit is None or window < limit:
            raise UnsupportedModelError(
                f"layer {index} of {kind} is {layer_type} over {window} tokens, which forgets what a rollback must restore;"
                f" with max_length={window} the model can be used up to its window"
            )


def context_limit(config: Any) -> int | None:
    """How many positions the config allows, or None when it sets no limit."""
    limit = getattr(config, "max_position_embeddings", None)
    return int(limit) if isinstance(limit, int) and limit > 0 else None


def layer_types(config: Any) -> list[str]:
    """The kind of every layer, in transformers' own words."""
    if "local" in (getattr(config, "attention_layers", None) or ()):  # GPT-Neo keeps its windows under another name
        return ["full_attention" if kind == "global" else "local attention" for kind in config.attention_layers]
    try:
        from transformers.cache_utils import get_layer_types_and_kwargs
    except ImportError:
        declared = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
        if declared:
            return list(declared)
        kind = "sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"
        return [kind] * config.num_hidden_layers
    return list(get_layer_types_and_kwargs(config)[0])


def check_module(module: Any) -> None:
    """Raise UnsupportedModelError unless `module` has an output layer, input embeddings and a forward that takes a cache."""
    import inspect

    kind = type(module).__name__
    head = getattr(module, "get_output_embeddings", bool)()
    if getattr(head, "weight", None) is None:
        raise UnsupportedModelError(f"{kind} has no output layer (language model head), so it gives no token probabilities")
    parameters = inspect.signature(module.forward).parameters
    if "cache" not in parameters and "past_key_values" not in parameters:
        raise UnsupportedModelError(f"{kind} takes no key/value cache in its forward, so drafts cannot be rolled back")
    attention = getattr(module.config, "_attn_implementation", None)
    if attention not in ("sdpa", "eager", None):
        raise UnsupportedModelError(
            f"{kind} runs {attention!r} attention, which takes no mask; load it with attn_implementation='sdpa'"
        )
