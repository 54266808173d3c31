"""The function for `custom_generate=`: rows side by side, each by the decode loop, put together as
transformers does."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from transformers.generation.utils import GenerateDecoderOnlyOutput

from draftproof.core.chance import SEED_BITS
from draftproof.core.grammar import Grammar
from draftproof.core.params import SamplingParams
from draftproof.core.records import Round
from draftproof.core.structured import StructuredOutputs
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.decode.engine import Engine, OnRound
from draftproof.decode.request import GenerationRequest
from draftproof.decode.result import Result
from draftproof.decode.statistics import Statistics
from draftproof.errors import UsageError
from draftproof.hf import request as asked
from draftproof.hf.laws import check_processors, row_params
from draftproof.hf.stopping import CriteriaStopper, eos_token_ids, max_length, other_criteria
from draftproof.models.hf import HFModel

_CHECKED: weakref.WeakSet[Any] = weakref.WeakSet()
"""Modules that have passed the check of their forward; it need not be repeated for every call."""


@dataclass
class SpeculativeOutput(GenerateDecoderOnlyOutput):
    """What `return_dict_in_generate=True` gives: `sequences` as transformers', and the statistics
    of each row."""

    statistics: tuple[Statistics, ...] | None = None


def generate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any = None,
    stopping_criteria: Any = None,
    generation_config: Any = None,
    *,
    drafter: Any = "ngram",
    speculative_config: Mapping[str, Any] | None = None,
    target_tokenizer: Any = None,
    drafter_tokenizer: Any = None,
    prediction: Sequence[int] | None = None,
    structured_outputs: Mapping[str, Any] | None = None,
    streamer: Any = None,
    synced_gpus: bool = False,
    **model_inputs: Any,
) -> torch.Tensor | SpeculativeOutput:
    """Generate speculatively; give it as `custom_generate=` to `model.generate`, which calls it
    with everything prepared.

    drafter: a method name ("ngram", "none"), a speculative_config mapping, a transformers model
    that drafts, or a Drafter of your own. speculative_config: length and rule beside a model or a
    Drafter. target_tokenizer, drafter_tokenizer: for a model that drafts with a tokenizer of its
    own (transformers keeps `tokenizer` and `assistant_tokenizer` to itself). prediction: ids that
    much of every row's answer is expected to repeat, for the drafter "prediction".
    structured_outputs: a grammar that every row keeps to, as in `SamplingParams`; it needs
    `target_tokenizer`.

    Returns the tensor transformers would: prompts with what follows, rows filled up with the
    padding id; greedy decoding gives the same ids. Sampling draws its seed from torch's global
    generator, so `torch.manual_seed` replays it.

    Rows run together, each without its padding and with its own acceptance. A cache of the caller's
    is neither read nor written: it stays as it was given. A row ends at the model's context limit
    at the latest. UsageError names what is not supported, before any pass."""
    outer = asked.outer_arguments()
    streamer = streamer if streamer is not None else outer.get("streamer")
    if outer.get("assistant_model") is not None:
        raise UsageError(
            "assistant_model is transformers' own way to draft; give the model as drafter="
        )
    if synced_gpus or outer.get("synced_gpus"):
        raise UsageError("synced_gpus=True is not supported with custom_generate; leave it out")
    asked.check_config(generation_config)
    asked.check_inputs(model, input_ids, generation_config, model_inputs)
    check_processors(logits_processor or ())
    batch = asked.rows(input_ids, model_inputs)
    if streamer is not None and len(batch) > 1:
        raise UsageError("a streamer needs a batch of one, as in transformers")
    with _training_kept(model, drafter):
        for_grammar = structured_outputs is not None and drafter_tokenizer is None
        tokenizers = (None if for_grammar else target_tokenizer, drafter_tokenizer)
        decoder_of = partial(_decoder, drafter, speculative_config, tokenizers)
        job = _Job(
            *(
                model,
                decoder_of,
                logits_processor or (),
                stopping_criteria or (),
                generation_config,
                batch,
            ),
            prediction=prediction,
            grammar_of=partial(_grammar, structured_outputs, target_tokenizer),
        )
        texts, statistics = job.run(input_ids, streamer)
    sequences: Any = _together(input_ids, texts, generation_config)
    if streamer is not None:
        streamer.end()
    whole = generation_config.return_dict_in_generate
    return SpeculativeOutput(sequences=sequences, statistics=statistics) if whole else sequences


class _Job:
    """One call, prepared: a decoder over the live model, and what every row needs."""

    def __init__(
        self,
        model: Any,
        decoder_of: Callable[[HFModel], SpeculativeDecoder],
        processors: Sequence[Any],
        criteria: Sequence[Any],
        config: Any,
        batch: Sequence[asked.Row],
        *,
        prediction: Sequence[int] | None,
        grammar_of: Callable[[HFModel], Grammar | None],
    ) -> None:
        target = _wrap(model)
        self._eos = target.eos_token_ids = eos_token_ids(criteria, target.vocab_size)
        self._grammar = grammar_of(target)
        self._decoder = decoder_of(target)
        self._processors, self._batch, self._prediction = processors, batch, prediction
        self._samples = config.num_return_sequences or 1
        self._greedy = not config.do_sample
        self._others = other_criteria(criteria)
        self._limit = max(
            1, max_length(criteria, config) - len(batch[0].padding) - len(batch[0].prompt)
        )
        if len(batch) > 1 and self._others and config._pad_token_tensor is None:
            raise UsageError(
                "rows may end at different lengths: a batch with stopping criteria needs "
                "a pad_token_id"
            )

    def run(
        self, input_ids: torch.Tensor, streamer: Any
    ) -> tuple[list[list[int]], tuple[Statistics, ...]]:
        """The new ids of each row, and its statistics."""
        seed = 0 if self._greedy else int(torch.randint(2**SEED_BITS, ()))
        engine = Engine(
            self._decoder.target, self._decoder.speculation, max_num_seqs=len(self._batch)
        )
        results: dict[int, Result] = {}
        try:
            numbers = {
                engine.add_request(
                    self._request(number, seed),
                    on_round=_put(streamer),
                    stopper=self._stopper(row, input_ids.device),
                ): number
                for number, row in enumerate(self._batch)
            }
            while engine.has_unfinished_requests():
                for output in engine.step():
                    if output.error is not None:
                        raise output.error
                    results[numbers[output.request_id]] = output.result
        finally:
            engine.close()
        ended = [results[number] for number in range(len(self._batch))]
        return [list(result.token_ids) for result in ended], tuple(result.stats for result in ended)

    def _request(self, number: int, seed: int) -> GenerationRequest:
        """The request of a row: rows of one prompt are texts of one stream."""
        row = self._batch[number]
        copies = sum(other.prompt == row.prompt for other in self._batch[:number])
        return replace(
            self._decoder.request(row.prompt, self._params(row, number, seed)), first_index=copies
        )

    def _params(self, row: asked.Row, number: int, seed: int) -> SamplingParams:
        params = row_params(
            self._processors,
            row,
            number,
            samples=self._samples,
            greedy=self._greedy,
            max_tokens=self._limit,
            eos=set(self._eos),
            seed=seed,
        )
        return replace(params, prediction=self._prediction, structured_outputs=self._grammar)

    def _stopper(self, row: asked.Row, device: torch.device) -> CriteriaStopper:
        room = self._decoder.target.max_length
        limit = self._limit if room is None else min(self._limit, room - len(row.prompt))
        return CriteriaStopper(
            row, eos=self._eos, limit=limit, criteria=self._others, device=device
        )


def _grammar(
    asked_for: Mapping[str, Any] | None, tokenizer: Any, target: HFModel
) -> Grammar | None:
    """The grammar of structured outputs for this target."""
    if asked_for is None:
        return None
    wanted = StructuredOutputs.from_dict(asked_for)
    if tokenizer is None:
        raise UsageError(
            "structured_outputs needs target_tokenizer, which says how the grammar is "
            "spelled in token ids"
        )
    from draftproof.grammars.guidance import compile_grammar

    return compile_grammar(
        wanted, tokenizer, vocab_size=target.vocab_size, eos_token_ids=target.eos_token_ids
    )


def _decoder(
    drafter: Any, config: Mapping[str, Any] | None, tokenizers: tuple[Any, Any], target: HFModel
) -> SpeculativeDecoder:
    """The decoder that `drafter` and `config` ask for. tokenizers: of target and drafter, for a
    model that drafts."""
    if drafter is None:
        raise UsageError(
            "drafter is None; give a method name, a speculative_config, a model that "
            "drafts, or a Drafter"
        )
    if isinstance(drafter, Mapping) and config is not None:
        raise UsageError(
            "drafter is a whole speculative_config; leave speculative_config= out, or "
            "give it a method name or a model"
        )
    if any(each is not None for each in tokenizers):
        return _across(drafter, config, tokenizers, target)
    if isinstance(drafter, torch.nn.Module) and (config or {}).get("use_heterogeneous_vocab"):
        raise UsageError(
            "use_heterogeneous_vocab needs both tokenizers: give target_tokenizer= and "
            "drafter_tokenizer="
        )
    if not isinstance(drafter, (str, Mapping)):
        draft = _wrap(drafter) if isinstance(drafter, torch.nn.Module) else drafter
        return SpeculativeDecoder(draft, target, speculative_config=config)
    whole = {"method": drafter} | dict(config or {}) if isinstance(drafter, str) else drafter
    parsed = SpeculativeConfig.from_dict(whole)
    draft, wanted = None, parsed.draft_model
    if wanted is not None and wanted.model is not None:
        from draftproof.models.load import load_model

        draft = load_model(
            wanted.model, dtype=target.dtype, device=target.device, revision=wanted.revision
        )
    return SpeculativeDecoder(draft, target, speculative_config=parsed)


def _across(
    drafter: Any, config: Mapping[str, Any] | None, tokenizers: tuple[Any, Any], target: HFModel
) -> SpeculativeDecoder:
    """The decoder of a model that drafts with a tokenizer of its own."""
    if any(each is None for each in tokenizers) or not isinstance(drafter, torch.nn.Module):
        raise UsageError(
            "target_tokenizer and drafter_tokenizer go together, beside a transformers "
            "model as drafter"
        )
    whole = {"method": "draft_model", "model": "drafter", "use_heterogeneous_vocab": True} | dict(
        config or {}
    )
    target.tokenizer = tokenizers[0]
    return SpeculativeDecoder(
        _wrap(drafter, tokenizers[1]), target, tokenizers[0], speculative_config=whole
    )


def _wrap(module: Any, tokenizer: Any = None) -> HFModel:
    wrapped = HFModel(module, tokenizer, check=module not in _CHECKED)
    _CHECKED.add(module)
    return wrapped


@contextmanager
def _training_kept(*models: Any) -> Iterator[None]:
    """Decoding is done in eval mode; afterwards every part of the models is in the mode it was
    in."""
    parts = [
        part for model in models if isinstance(model, torch.nn.Module) for part in model.modules()
    ]
    was_training = [part for part in parts if part.training]
    try:
        yield
    finally:
        for part in was_training:
            part.training = True


def _put(streamer: Any) -> OnRound | None:
    """Hands a round's tokens to the streamer one at a time, as transformers does; the prompt it has
    had already."""
    if streamer is None:
        return None

    def put(record: Round) -> None:
        for token in record.tokens:
            streamer.put(torch.tensor([token]))

    return put


def _together(input_ids: torch.Tensor, texts: Sequence[Sequence[int]], config: Any) -> torch.Tensor:
    """[rows, length]: every row's input and new ids, filled up on the right with the padding id."""
    longest = max(len(text) for text in texts)
    padding = config._pad_token_tensor
    fill = 0 if padding is None else int(padding)
    new = torch.full((len(texts), longest), fill, dtype=input_ids.dtype, device=input_ids.device)
    for number, text in enumerate(texts):
        new[number, : len(text)] = torch.tensor(
            text, dtype=input_ids.dtype, device=input_ids.device
        )
    return torch.cat([input_ids, new], dim=1)
