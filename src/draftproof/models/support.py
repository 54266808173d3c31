"""Which models can be decoded exactly here: the kind of every layer, and refusals by name when a
model is loaded."""

from __future__ import annotations

from typing import Any

from draftproof.errors import UnsupportedModelError
from draftproof.models.adapters import check_adapter
from draftproof.models.caches.kinds import LayerKind, layer_kinds
from draftproof.models.protocol import LanguageModel
from draftproof.models.rotation import READ_AGAIN, length_scaled, scaled_positions


def check_config(config: Any, max_length: int | None = None) -> list[LayerKind]:
    """The kind of every layer's cache; UnsupportedModelError for an encoder-decoder, a multimodal
    model, or a layer whose past can neither be cut by length nor restored.

    max_length: the most tokens a session will hold; a window at least as wide never drops anything
    and is full attention."""
    kind = type(config).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{kind} is an encoder-decoder model; only decoder-only language models can be used"
        )
    if config.get_text_config(decoder=True) is not config:
        raise UnsupportedModelError(
            f"{kind} takes more than text; only text-only decoders can be used"
        )
    return layer_kinds(config, max_length if max_length is not None else context_limit(config))


def context_limit(config: Any) -> int | None:
    """How many positions the config allows, those that scaled frequencies reach included; None when
    it sets no limit.

    With frequencies that change with the length, as many as the text alone decides over (see
    `draftproof.models.rotation`)."""
    limit = getattr(config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit <= 0:
        return None
    return (
        min(limit, held_to(config) or limit)
        if length_scaled(config)
        else max(limit, scaled_positions(config))
    )


def held_to(config: Any) -> int | None:
    """The most tokens up to which what transformers generates depends on the text alone; None when
    it always does."""
    found = length_scaled(config)
    return None if found is None or getattr(config, "model_type", None) in READ_AGAIN else found[1]


def limit_note(config: Any) -> str | None:
    """Why texts are held to fewer tokens than transformers would generate, if they are."""
    length = held_to(config)
    if length is None:
        return None
    kind, _ = length_scaled(config) or ("", 0)
    return (
        f"texts are held to {length} tokens, because beyond them the rotary embedding of "
        f"{type(config).__name__} ({kind})"
        " changes its frequencies and leaves older keys as they are: transformers' own "
        "text then depends on where the prompt"
        " ended"
    )


def unwrapped(module: Any) -> Any:
    """The transformers module inside what torch.compile, PEFT or torch's parallel wrappers made of
    it, with the adapters that PEFT put into its layers. UnsupportedModelError for those that put
    learned tokens before the text."""
    for name in ("_orig_mod", "module"):  # of torch.compile, of DataParallel and its kin
        inner = getattr(module, name, None)
        if inner is not None and hasattr(inner, "forward"):
            return unwrapped(inner)
    adapters = getattr(module, "peft_config", None)
    if adapters is None or not hasattr(module, "get_base_model"):
        return module
    for adapter in adapters.values():
        check_adapter(
            str(getattr(adapter, "peft_type", "")),
            getattr(adapter, "alora_invocation_tokens", None),
            "the module",
        )
    return unwrapped(module.get_base_model())


def check_module(module: Any) -> None:
    """Raise UnsupportedModelError unless `module` has an output layer, input embeddings and a
    forward that takes a cache."""
    import inspect

    kind = type(module).__name__
    head = getattr(module, "get_output_embeddings", bool)()
    if getattr(head, "weight", None) is None:
        raise UnsupportedModelError(
            f"{kind} has no output layer (language model head), so it gives no token probabilities"
        )
    parameters = inspect.signature(module.forward).parameters
    if "cache" not in parameters and "past_key_values" not in parameters:
        raise UnsupportedModelError(
            f"{kind} takes no key/value cache in its forward, so drafts cannot be rolled back"
        )
    attention = getattr(module.config, "_attn_implementation", None)
    if attention not in ("sdpa", "eager", None):
        raise UnsupportedModelError(
            f"{kind} runs {attention!r} attention, which takes no mask; load it with "
            "attn_implementation='sdpa'"
        )


def counts_places(config: Any, limit: int | None) -> bool:
    """Whether attention takes the place of a token in the cache or the pass for its position, which
    for a tree's node or a second sequence is another one: a bias by distance (ALiBi), or Llama 4's
    temperature on texts of `limit` tokens."""
    if getattr(config, "alibi", False) or getattr(
        getattr(config, "attn_config", None), "alibi", False
    ):
        return True
    tempered = getattr(config, "attn_temperature_tuning", False)
    return bool(tempered) and (limit is None or limit >= int(getattr(config, "floor_scale", 1)))


def num_rows(head: Any) -> int:
    """How many token ids an output layer gives logits for; a quantised one keeps its weights behind
    other names."""
    return int(getattr(head, "out_features", None) or head.weight.shape[0])


def check_target(model: LanguageModel) -> None:
    """Raise UnsupportedModelError for a model that can draft but whose rows influence each other,
    so that it cannot verify."""
    if model.rows_mix is not None:
        raise UnsupportedModelError(
            f"{model.name} cannot be a target: {model.rows_mix}, so a draft would change "
            "the logits it is verified by"
        )
