"""Read a transformers `GenerationConfig` into sampling parameters: honoured, or refused by name.

Fields the config leaves None get transformers' own defaults (do_sample False, top_k 50), because
that is what `model.generate` does with them; max_length alone keeps ours. What has no field here
but is one of transformers' logits processors is built from transformers and applied where
transformers applies it (`GenerationMixin._get_logits_processor` of 5.24), or in a place that
commutes with it. Not read: EOS, BOS and padding ids, caches and compilation, what to return, how to
speculate; these belong to the caller.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from draftproof.core.parameters import PARAMETERS
from draftproof.errors import UsageError

_REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "num_beams": (
        lambda v: v > 1,
        "beam search keeps several texts and has no sampling law; set num_beams=1",
    ),
    "num_beam_groups": (lambda v: v > 1, "beam search has no sampling law; set num_beam_groups=1"),
    "constraints": (bool, "constrained beam search has no sampling law; leave it None"),
    "force_words_ids": (bool, "constrained beam search has no sampling law; leave it None"),
    "penalty_alpha": (
        lambda v: v > 0,
        "contrastive search re-ranks by hidden states; leave it None",
    ),
    "dola_layers": (lambda v: True, "DoLa contrasts layers of the model; leave it None"),
    "guidance_scale": (lambda v: v != 1, "guidance needs a second prompt; leave it None"),
    "watermarking_config": (
        lambda v: True,
        "a watermark changes the law in ways the draft cannot follow; leave it None",
    ),
    "encoder_repetition_penalty": (
        lambda v: v != 1,
        "it is for encoder-decoder models; use repetition_penalty",
    ),
    "encoder_no_repeat_ngram_size": (
        lambda v: v > 0,
        "it is for encoder-decoder models; use no_repeat_ngram_size",
    ),
    "token_healing": (bool, "it rewrites the prompt; leave it False"),
    "max_time": (
        lambda v: True,
        "a time limit makes the text depend on the machine; leave it None, or cancel the request",
    ),
    "assistant_ensemble_weight": (lambda v: True, "it gives up exactness; leave it None"),
}


def ids_of(value: Any, vocab_size: int | None = None) -> tuple[int, ...]:
    """Token ids as configs give them: one, several or None. An id below 0 or outside the vocabulary
    is how they say "none"."""
    ids = () if value is None else (value,) if isinstance(value, int) else value
    return tuple(int(i) for i in ids if i >= 0 and (vocab_size is None or i < vocab_size))


def sampling_fields(
    config: Any,
    num_prompt_tokens: int | None,
    overrides: Mapping[str, Any],
    vocab_size: int | None = None,
) -> dict[str, Any]:
    """The fields of `SamplingParams` that `config` amounts to, with `overrides` put in their
    place."""
    read = _Reader(config, num_prompt_tokens, vocab_size)
    for name, (active, reason) in _REFUSED.items():
        value = read(name)
        if value is not None and active(value):
            read.refuse(name, value, reason)
    found = {
        "temperature": _or(read("temperature"), 1.0) if read("do_sample") else 0.0,
        **{
            name: _or(read(stated.transformers), stated.off)
            for name, stated in PARAMETERS.items()
            if stated.off is not None
        },
        "logit_bias": {
            sequence[0]: bias for sequence, bias in read.sequence_bias() if len(sequence) == 1
        },
        "bad_words_ids": [
            word
            for word in read("bad_words_ids") or ()
            if list(word) not in [[eos] for eos in read.eos]
        ],
        "suppress_tokens": read.ids("suppress_tokens"),
    }
    if read("stop_strings"):
        found |= {"stop": read("stop_strings"), "include_stop_str_in_output": True}
    _lengths(read, found, overrides)
    found |= overrides
    for name, built in (
        ("logits_processors", _processors(read, found)),
        ("logits_warpers", _warpers(read, found)),
    ):
        own = tuple(overrides.get(name) or ())
        # as in transformers, the caller's replaces the config's of its kind
        kinds = {type(processor) for processor in own}
        found[name] = tuple(processor for processor in built if type(processor) not in kinds) + own
    return found


class _Reader:
    """A config's values, transformers' defaults behind them."""

    def __init__(self, config: Any, num_prompt_tokens: int | None, vocab_size: int | None) -> None:
        self._config, self._num_prompt_tokens = config, num_prompt_tokens
        self._vocab_size = vocab_size
        self._defaults: dict[str, Any] = getattr(config, "_get_default_generation_params", dict)()
        self._defaults.pop("max_length", None)
        self.eos = list(self.ids("eos_token_id"))

    def __call__(self, name: Any) -> Any:
        value = getattr(self._config, name, None)
        return self._defaults.get(name) if value is None else value

    def ids(self, name: str) -> tuple[int, ...]:
        return ids_of(self(name), self._vocab_size)

    def refuse(self, name: str, value: Any, reason: str) -> NoReturn:
        raise UsageError(
            f"the generation config's {name} is {value!r}, which is not supported: {reason}"
        )

    def prompt_length(self, name: str) -> int:
        """The prompt's length, which the field `name` cannot do without."""
        if self._num_prompt_tokens is None:
            raise UsageError(
                f"the generation config's {name} counts the prompt: num_prompt_tokens "
                "must be given with it"
            )
        return self._num_prompt_tokens

    def sequence_bias(self) -> list[tuple[tuple[int, ...], float]]:
        bias = self("sequence_bias") or ()
        pairs = bias.items() if isinstance(bias, Mapping) else bias
        return [(tuple(sequence), float(value)) for sequence, value in pairs]


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _lengths(read: _Reader, found: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    if "max_tokens" not in overrides:
        if read("max_new_tokens") is not None:
            found["max_tokens"] = read("max_new_tokens")
        elif read("max_length") is not None:
            found["max_tokens"] = read("max_length") - read.prompt_length("max_length")
            if found["max_tokens"] < 1:
                read.refuse(
                    "max_length",
                    read("max_length"),
                    f"the prompt has {read.prompt_length('max_length')} tokens already",
                )
    if "min_tokens" not in overrides:
        if read("min_new_tokens") is not None:
            found["min_tokens"] = read("min_new_tokens")
        elif read("min_length"):
            found["min_tokens"] = max(0, read("min_length") - read.prompt_length("min_length"))


def _processors(read: _Reader, found: dict[str, Any]) -> list[Any]:
    """transformers' processors that come before the temperature and have no field of ours."""
    built = []
    longer = {sequence: bias for sequence, bias in read.sequence_bias() if len(sequence) > 1}
    if longer and found["repetition_penalty"] != 1:
        read.refuse(
            "sequence_bias", longer, "a bias on several tokens together with repetition_penalty"
        )
    if longer:
        built.append(_transformers("SequenceBiasLogitsProcessor")(longer))
    if read("no_repeat_ngram_size"):
        built.append(_transformers("NoRepeatNGramLogitsProcessor")(read("no_repeat_ngram_size")))
    built += _forced(read, found)
    if read("remove_invalid_values"):
        built.append(_transformers("InfNanRemoveLogitsProcessor")())
    decay = read("exponential_decay_length_penalty")
    if decay is not None:
        if not read.eos:
            read.refuse(
                "exponential_decay_length_penalty", decay, "the config has no eos_token_id to raise"
            )
        length = read.prompt_length("exponential_decay_length_penalty")
        built.append(_transformers("ExponentialDecayLengthPenalty")(tuple(decay), read.eos, length))
    begin = read.ids("begin_suppress_tokens")
    if begin:
        length = read.prompt_length("begin_suppress_tokens")
        start = length if length > 1 or not read.ids("forced_bos_token_id") else length + 1
        built.append(_transformers("SuppressTokensAtBeginLogitsProcessor")(list(begin), start))
    return built


def _forced(read: _Reader, found: dict[str, Any]) -> list[Any]:
    built = []
    bos, eos = read.ids("forced_bos_token_id"), list(read.ids("forced_eos_token_id"))
    banned = {*found["suppress_tokens"], *read.ids("begin_suppress_tokens")}
    for name, forced in (("forced_bos_token_id", bos), ("forced_eos_token_id", eos)):
        if banned.intersection(forced):
            read.refuse(name, read(name), "a token of it is suppressed as well")
    if bos:
        built.append(_transformers("ForcedBOSTokenLogitsProcessor")(bos[0]))
    if eos:
        limit = found.get("max_tokens")
        if limit is None:
            unknown = "the place to force it at is not known without max_new_tokens or max_length"
            read.refuse("forced_eos_token_id", read("forced_eos_token_id"), unknown)
        built.append(
            _transformers("ForcedEOSTokenLogitsProcessor")(
                read.prompt_length("forced_eos_token_id") + limit, eos
            )
        )
    return built


def _warpers(read: _Reader, found: dict[str, Any]) -> list[Any]:
    """transformers' truncations that come after min-p and have no field of ours."""
    built = []
    if read("top_h") is not None:
        if found["top_k"] > 0 or found["top_p"] < 1 or found["min_p"] > 0:
            read.refuse(
                "top_h",
                read("top_h"),
                "it is supported only without top_k (set it to 0), top_p and min_p",
            )
        built.append(_transformers("TopHLogitsWarper")(read("top_h")))
    if _or(read("typical_p"), 1.0) < 1:
        built.append(_transformers("TypicalLogitsWarper")(read("typical_p")))
    if 0 < _or(read("epsilon_cutoff"), 0.0) < 1:
        built.append(_transformers("EpsilonLogitsWarper")(read("epsilon_cutoff")))
    if 0 < _or(read("eta_cutoff"), 0.0) < 1:
        built.append(_transformers("EtaLogitsWarper")(read("eta_cutoff")))
    return built


def _transformers(name: str) -> Any:
    """A class of transformers by name: core imports no model library, and a config in hand means it
    is loaded anyway."""
    return getattr(importlib.import_module("transformers.generation.logits_process"), name)
