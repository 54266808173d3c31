"""What `model.generate` handed over, checked: every argument is honoured or refused by name before
the first pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from draftproof.errors import UsageError

_OUTER = ("streamer", "assistant_model", "synced_gpus")
_FRAMES = 8

_REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "num_beams": (
        lambda v: v > 1,
        "beam search keeps several texts and has no sampling law; set num_beams=1",
    ),
    "num_beam_groups": (lambda v: v > 1, "beam search has no sampling law; leave it out"),
    "constraints": (bool, "constrained beam search has no sampling law; leave it out"),
    "force_words_ids": (bool, "constrained beam search has no sampling law; leave it out"),
    "penalty_alpha": (
        lambda v: v > 0,
        "contrastive search re-ranks by hidden states; leave it out",
    ),
    "dola_layers": (bool, "DoLa contrasts layers of the model; leave it out"),
    "prompt_lookup_num_tokens": (bool, "say drafter='ngram' for prompt lookup, and leave it out"),
    "assistant_early_exit": (bool, "it is a drafter of transformers' own; leave it out"),
    "use_mtp": (bool, "it is a drafter of transformers' own; leave it out"),
    "speculation_type": (bool, "it is a drafter of transformers' own; leave it out"),
    "assistant_ensemble_weight": (bool, "it gives up exactness; leave it out"),
    "use_cache": (lambda v: v is False, "drafts are verified with a cache; set use_cache=True"),
    "cache_implementation": (
        lambda v: v != "dynamic",
        "draftproof keeps keys and values in a cache of its own; leave it out",
    ),
    "prefill_chunk_size": (
        bool,
        "draftproof reads a long prompt in chunks of its own; leave it out",
    ),
}
_ONLY_WITH_A_DICT = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
_KNOWN_INPUTS = {
    "attention_mask",
    "position_ids",
    "cache",
    "past_key_values",
    "use_cache",
    "logits_to_keep",
    *_ONLY_WITH_A_DICT,
}


@dataclass(frozen=True)
class Row:
    """One row of the batch: its prompt without padding, and the padding ids that stood before
    it."""

    padding: tuple[int, ...]
    prompt: tuple[int, ...]


def outer_arguments() -> dict[str, Any]:
    """Arguments of the running `model.generate` that transformers 5.24 keeps from a custom
    function.

    It puts the prompt into the streamer and then drops it, so its frame is the only place to find
    it; a streamer that was silently dropped would leave its reader waiting for ever. {} when called
    from elsewhere."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if (
            frame.f_code.co_name == "generate"
            and frame.f_globals.get("__name__") == "transformers.generation.utils"
        ):
            return {name: frame.f_locals.get(name) for name in _OUTER}
        if frame.f_back is None:
            break
        frame = frame.f_back
    return {}


def check_config(config: Any) -> None:
    """UsageError for a generation config that asks for something else than sampling or greedy
    decoding with our cache."""
    for name, (active, advice) in _REFUSED.items():
        value = getattr(config, name, None)
        if value is not None and active(value):
            raise UsageError(f"{name}={value!r} is not supported with custom_generate: {advice}")
    if config.return_dict_in_generate:
        for name in _ONLY_WITH_A_DICT:
            if getattr(config, name, None):
                raise UsageError(
                    f"{name}=True is not supported with custom_generate: one pass serves "
                    "several tokens; leave it out"
                )


def check_inputs(
    model: Any, input_ids: torch.Tensor, config: Any, inputs: Mapping[str, Any]
) -> None:
    """UsageError for model inputs that are more than token ids with their padding, or a cache that
    does not fit them."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise UsageError(
            f"{type(model).__name__} is an encoder-decoder model; only decoder-only "
            "models can be used"
        )
    for name, value in inputs.items():
        if value is not None and name not in _KNOWN_INPUTS:
            raise UsageError(
                f"the model input {name!r} is not supported with custom_generate; "
                "allowed: input_ids, attention_mask"
            )
    cache = (
        inputs.get("cache") if inputs.get("cache") is not None else inputs.get("past_key_values")
    )
    if not getattr(cache, "_is_user_defined", False):
        return
    mask, length = inputs.get("attention_mask"), input_ids.shape[1]
    mask_length = getattr(config, "_mask_length", length) if mask is None else mask.shape[1]
    held = cache.get_seq_length()  # type: ignore[union-attr]
    if mask_length != length or held >= length:
        raise UsageError(
            f"the cache given holds {held} tokens beside {length} input_ids; input_ids must hold "
            "the whole prompt, the cached part included"
        )


def rows(input_ids: torch.Tensor, inputs: Mapping[str, Any]) -> list[Row]:
    """The prompts, left padding cut off. UsageError when the mask or the positions say anything but
    left padding."""
    mask = inputs.get("attention_mask")
    mask = torch.ones_like(input_ids) if mask is None else mask.to(input_ids.device)
    if mask.shape != input_ids.shape:
        raise UsageError(
            f"attention_mask has shape {list(mask.shape)}, input_ids "
            f"{list(input_ids.shape)}; they must be the same"
        )
    lengths = mask.bool().sum(dim=1)
    places = torch.arange(input_ids.shape[1], device=input_ids.device)
    expected = places[None, :] >= (input_ids.shape[1] - lengths)[:, None]
    for number, (same, length) in enumerate(
        zip((mask.bool() == expected).all(dim=1).tolist(), lengths.tolist(), strict=True)
    ):
        if not same or length == 0:
            raise UsageError(
                f"attention_mask row {number} is not left padding (zeros, then ones); "
                "pad on the left"
            )
    _check_positions(inputs.get("position_ids"), mask)
    cuts = (input_ids.shape[1] - lengths).tolist()
    return [
        Row(tuple(ids[:cut]), tuple(ids[cut:]))
        for ids, cut in zip(input_ids.tolist(), cuts, strict=True)
    ]


def _check_positions(positions: torch.Tensor | None, mask: torch.Tensor) -> None:
    if positions is None:
        return
    counted = (mask.long().cumsum(-1) - 1).masked_fill(mask == 0, 0)
    if positions.shape[-1] != counted.shape[-1] or not bool(
        (positions.to(counted.device) == counted).all()
    ):
        raise UsageError(
            "position_ids must count the tokens that are not padding from 0; leave them out"
        )
