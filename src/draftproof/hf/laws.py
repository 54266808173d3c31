"""transformers' prepared logits processors as `SamplingParams`: each applied once, in the order
transformers gave them.

The prepared list is all that counts: it holds what the generation config asks for and the caller's
own processors, the caller's in the place of the config's where both are of one kind. Its known
beginning (bias, repetition penalty, bad words, minimum lengths, suppressed tokens) and its known
end (temperature, top-k, top-p, min-p) become fields, which are faster and let drafters leave out
forbidden tokens. Whatever stands between runs as it is, one row at a time, on the padded row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers.generation import logits_process as lp

from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError
from draftproof.hf.request import Row

_REFUSED = {
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": (
        "guidance needs passes of its own; leave guidance_scale out"
    ),
    "EncoderRepetitionPenaltyLogitsProcessor": (
        "it is for encoder-decoder models; use repetition_penalty"
    ),
    "EncoderNoRepeatNGramLogitsProcessor": (
        "it is for encoder-decoder models; use no_repeat_ngram_size"
    ),
    "SynthIDTextWatermarkLogitsProcessor": (
        "it remembers the calls made so far, and verification makes others; leave it out"
    ),
}
_FRONT: tuple[type, ...] = (
    lp.SequenceBiasLogitsProcessor,
    lp.RepetitionPenaltyLogitsProcessor,
    lp.NoBadWordsLogitsProcessor,
    lp.MinLengthLogitsProcessor,
    lp.MinNewTokensLengthLogitsProcessor,
    lp.SuppressTokensLogitsProcessor,
)
_BACK: tuple[type, ...] = (
    lp.TemperatureLogitsWarper,
    lp.TopKLogitsWarper,
    lp.TopPLogitsWarper,
    lp.MinPLogitsWarper,
)
_AFTER: tuple[type, ...] = (
    lp.TopHLogitsWarper,
    lp.TypicalLogitsWarper,
    lp.EpsilonLogitsWarper,
    lp.EtaLogitsWarper,
    lp.WatermarkLogitsProcessor,
)
"""These give the same law whatever constant is added to the scores."""


def check_processors(processors: Sequence[Any]) -> None:
    """UsageError for a processor that is not a function of one row's tokens and scores."""
    for processor in processors:
        name = type(processor).__name__
        if name in _REFUSED:
            raise UsageError(f"{name} is not supported with custom_generate: {_REFUSED[name]}")


def row_params(
    processors: Sequence[Any],
    row: Row,
    number: int,
    *,
    samples: int,
    greedy: bool,
    max_tokens: int,
    eos: set[int],
    seed: int,
) -> SamplingParams:
    """The parameters of row `number`. samples: rows in a line with the same prompt. eos: the ids
    that end a text."""
    padded = len(row.padding) + len(row.prompt)
    if processors and type(processors[-1]) is lp.LogitNormalization:  # a law is normalised anyway
        processors = processors[:-1]
    front, rest = _split_front(list(processors), row, number, eos)
    fields: dict[str, Any] = {"temperature": 0.0 if greedy else 1.0}
    for processor in front:
        _read_front(processor, fields, padded)
    rest, back, after = (rest, [], []) if greedy else _split_back(rest)
    for warper in back:
        _read_back(warper, fields)
    fields["min_tokens"] = min(fields.get("min_tokens", 0), max_tokens)
    return SamplingParams(
        **fields,
        max_tokens=max_tokens,
        seed=seed,
        logits_processors=[_for_row(processor, row, number, samples) for processor in rest],
        logits_warpers=[_for_row(processor, row, number, samples) for processor in after],
    )


def _split_front(
    processors: list[Any], row: Row, number: int, eos: set[int]
) -> tuple[list[Any], list[Any]]:
    """The longest beginning that fields can express, each kind once and in the order the fields are
    applied."""
    taken = 0
    last = -1
    for processor in processors:
        place = _FRONT.index(type(processor)) if type(processor) in _FRONT else -1
        if place <= last or not _is_plain(processor, row, number, eos):
            break
        taken, last = taken + 1, place
    return processors[:taken], processors[taken:]


def _is_plain(processor: Any, row: Row, number: int, eos: set[int]) -> bool:
    """Whether a field means the same as this processor does."""
    if type(processor) is lp.SequenceBiasLogitsProcessor:
        return all(
            len(sequence) == 1 and bias < math.inf
            for sequence, bias in processor.sequence_bias.items()
        )
    if type(processor) is lp.RepetitionPenaltyLogitsProcessor:
        return _ignored(processor, number) == len(row.padding)
    if type(processor) in (lp.MinLengthLogitsProcessor, lp.MinNewTokensLengthLogitsProcessor):
        return set(processor.eos_token_id.flatten().tolist()) == eos
    return True


def _ignored(processor: Any, number: int) -> int:
    """How many ids at the start of row `number` the repetition penalty leaves out."""
    ignored = getattr(processor, "prompt_ignore_length", None)
    if isinstance(ignored, torch.Tensor):
        return int(ignored[number])
    return ignored or 0


def _read_front(processor: Any, fields: dict[str, Any], padded: int) -> None:
    kind = type(processor)
    if kind is lp.SequenceBiasLogitsProcessor:
        fields["logit_bias"] = {
            sequence[0]: bias for sequence, bias in processor.sequence_bias.items()
        }
    elif kind is lp.RepetitionPenaltyLogitsProcessor:
        fields["repetition_penalty"] = processor.penalty
    elif kind is lp.NoBadWordsLogitsProcessor:
        fields["bad_words_ids"] = list(processor.sequence_bias)
    elif kind is lp.MinLengthLogitsProcessor:
        fields["min_tokens"] = max(fields.get("min_tokens", 0), processor.min_length - padded)
    elif kind is lp.MinNewTokensLengthLogitsProcessor:
        skipped = processor.prompt_length_to_skip + processor.min_new_tokens - padded
        fields["min_tokens"] = max(fields.get("min_tokens", 0), skipped)
    else:
        fields["suppress_tokens"] = processor.suppress_tokens.tolist()


def _split_back(processors: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """(before, fields can express these, after): the last run of known warpers in the order the
    fields are applied.

    What comes after a field sees scores up to a constant, so only truncations may; else everything
    runs as it is."""
    known = [_BACK.index(type(p)) if type(p) in _BACK and _keeps_one(p) else -1 for p in processors]
    end = max((i + 1 for i, place in enumerate(known) if place >= 0), default=0)
    if end == 0 or any(type(p) not in _AFTER for p in processors[end:]):
        return processors, [], []
    start = end - 1
    while start > 0 and 0 <= known[start - 1] < known[start]:
        start -= 1
    return processors[:start], processors[start:end], processors[end:]


def _keeps_one(warper: Any) -> bool:
    return (
        getattr(warper, "min_tokens_to_keep", 1) == 1
        and getattr(warper, "filter_value", -math.inf) == -math.inf
    )


def _read_back(warper: Any, fields: dict[str, Any]) -> None:
    kind = type(warper)
    if kind is lp.TemperatureLogitsWarper:
        fields["temperature"] = warper.temperature
    elif kind is lp.TopKLogitsWarper:
        fields["top_k"] = warper.top_k
    elif kind is lp.TopPLogitsWarper:
        fields["top_p"] = warper.top_p
    else:
        fields["min_p"] = warper.min_p


def _for_row(processor: Any, row: Row, number: int, samples: int) -> Callable[..., Any]:
    """The processor as it acts on this row alone, seeing the padding that transformers would show
    it."""
    if type(processor) is lp.RepetitionPenaltyLogitsProcessor:
        processor = lp.RepetitionPenaltyLogitsProcessor(
            processor.penalty, _ignored(processor, number)
        )
    elif type(processor) is lp.PrefixConstrainedLogitsProcessor:
        allowed = processor._prefix_allowed_tokens_fn
        processor = lp.PrefixConstrainedLogitsProcessor(
            lambda _, ids: allowed(number // samples, ids), 1
        )
    return PaddedProcessor(processor, row.padding) if row.padding else processor


class PaddedProcessor:
    """`processor` on the row as it stands in the batch: its padding first, then what is asked
    about."""

    def __init__(self, processor: Callable[..., Any], padding: Sequence[int]) -> None:
        self.processor, self._padding = processor, torch.tensor([list(padding)])
        self.__name__ = type(processor).__name__

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        padding = self._padding.to(input_ids.device)
        result: torch.Tensor = self.processor(torch.cat([padding, input_ids], dim=1), scores)
        return result
