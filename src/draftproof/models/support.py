"""Which models can be decoded exactly here: the kind of every layer, and refusals by name when a model is loaded."""

from __future__ import annotations

from typing import Any

from draftproof.errors import UnsupportedModelError
from draftproof.models.caches.kinds import LayerKind, layer_kinds


def check_config(config: Any, max_length: int | None = None) -> list[LayerKind]:
    """The kind of every layer's cache; UnsupportedModelError for an encoder-decoder, a multimodal model, or a layer whose past
    can neither be cut by length nor restored.

    max_length: the most tokens a session will hold; a window at least as wide never drops anything and is full attention."""
    kind = type(config).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{kind} is an encoder-decoder model; only decoder-only language models can be used")
    if config.get_text_config(decoder=True) is not config:
        raise UnsupportedModelError(f"{kind} takes more than text; only text-only decoders can be used")
    return layer_kinds(config, max_length if max_length is not None else context_limit(config))


def context_limit(config: Any) -> int | None:
    """How many positions the config allows, or None when it sets no limit."""
    limit = getattr(config, "max_position_embeddings", None)
    return int(limit) if isinstance(limit, int) and limit > 0 else None


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


def biases_by_place(config: Any) -> bool:
    """Whether attention is biased by where a key lies in the cache (ALiBi), which for a tree's node is another thing."""
    return bool(getattr(config, "alibi", False) or getattr(getattr(config, "attn_config", None), "alibi", False))


def num_rows(head: Any) -> int:
    """How many token ids an output layer gives logits for; a quantised one keeps its weights behind other names."""
    return int(getattr(head, "out_features", None) or head.weight.shape[0])


def check_target(model: Any) -> None:
    """Raise UnsupportedModelError for a model that can draft but whose rows influence each other, so that it cannot verify."""
    reason = getattr(model, "rows_mix", None)
    if reason is not None:
        raise UnsupportedModelError(
            f"{model.name} cannot be a target: {reason}, so a draft would change the logits it is verified by"
        )
