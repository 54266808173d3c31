"""`SpeculativeDecoder`: the public face of decoding. `decoder.plain` is the same target without speculation, the oracle."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from draftproof.core.chance import KeyedChance, stream_key
from draftproof.core.coupled import CoupledChance
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.rules import RULES
from draftproof.core.rules.protocol import Rule
from draftproof.core.tree import MAX_NODES
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.generation import Generation
from draftproof.decode.plain import PlainGeneration
from draftproof.decode.prompts import Prompt, is_batch, prompt_ids
from draftproof.decode.result import Completion, Piece, Result
from draftproof.decode.samples import Sample, Sequenced
from draftproof.decode.statistics import Statistics, statistics
from draftproof.decode.stopping import Stopper
from draftproof.decode.text import Detokenizer
from draftproof.drafters.protocol import Drafter, Request
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel, Session

if TYPE_CHECKING:
    from draftproof.core.records import Round


class Decoder:
    """What plain and speculative decoding share: prompts, parameters, samples, results. Holds no state between calls."""

    def __init__(self, target: LanguageModel, tokenizer: Any = None) -> None:
        self.target, self.tokenizer = target, tokenizer

    @overload
    def generate(self, prompt: str, params: SamplingParams | None = None) -> Result: ...
    @overload
    def generate(self, prompt: Sequence[int], params: SamplingParams | None = None) -> Result: ...
    @overload
    def generate(self, prompt: Any, params: SamplingParams | None = None) -> Any: ...

    def generate(self, prompt: Any, params: SamplingParams | None = None) -> Any:
        """Generate for one prompt (a string, token ids or chat messages) -> Result, or for a list of prompts -> list[Result].

        Without `params` the model's own generation config counts. Wrong input raises UsageError before any work."""
        if is_batch(prompt):
            requests = [self._request(one, params) for one in prompt]
            return [self._generate(*request) for request in requests]
        return self._generate(*self._request(prompt, params))

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, *, on_round: Callable[[Round], None] | None = None
    ) -> Generator[Piece, None, Result]:
        """Generate for one prompt, piece by piece. Closing the iterator ends the work and frees everything.

        `on_round` is called with every Round as it ends. The generator's value is the Result: `yield from` gives it."""
        if is_batch(prompt):
            raise UsageError("stream() takes one prompt; call it once for each")
        ids, complete = self._request(prompt, params)
        return self._run(ids, complete, streams=True, on_round=on_round)

    def _generate(self, ids: tuple[int, ...], params: SamplingParams) -> Result:
        pieces = self._run(ids, params, streams=False)
        try:
            while True:
                next(pieces)
        except StopIteration as done:
            result: Result = done.value
            return result

    def _run(
        self, ids: tuple[int, ...], params: SamplingParams, *, streams: bool, on_round: Callable[[Round], None] | None = None
    ) -> Generator[Piece, None, Result]:
        """All samples of one prompt; pieces come only when it `streams`."""
        session = self.target.open()
        outputs: list[Completion] = []
        prompt_logprobs = None
        try:
            for index in range(params.n):
                generation = self._generation(session, ids, params, index, streams)
                sample = self._sample(generation, params, index, generation.stopper.detokenizer if streams else None, on_round)
                if streams:
                    yield from sample.pieces()
                else:
                    sample.run_to_end()
                outputs.append(sample.completion(self._statistics(sample.rounds, params), params.logprobs is not None))
                prompt_logprobs = prompt_logprobs or generation.prompt_logprobs
        finally:
            session.close()
        assert params.seed is not None
        return Result(ids, tuple(outputs), params.seed, tuple(prompt_logprobs) if prompt_logprobs else None)

    def _sample(
        self,
        generation: Sequenced,
        params: SamplingParams,
        index: int,
        detokenizer: Detokenizer | None,
        on_round: Callable[[Round], None] | None,
    ) -> Sample:
        return Sample(
            generation,
            index=index,
            tokenizer=self.tokenizer,
            detokenizer=detokenizer,
            skip_special_tokens=params.skip_special_tokens,
            stop_strings=() if params.include_stop_str_in_output else tuple(params.stop or ()),
            on_round=on_round,
        )

    def _request(self, prompt: Any, params: SamplingParams | None) -> tuple[tuple[int, ...], SamplingParams]:
        """The prompt's ids and complete parameters, or a UsageError: everything that can be refused is refused here."""
        ids = prompt_ids(prompt, self.tokenizer, self.target.vocab_size)
        limit = self.target.max_length
        if limit is not None and len(ids) >= limit:
            raise UsageError(
                f"the prompt has {len(ids)} tokens; {self.target.name} holds {limit}, and one must be left to generate"
            )
        params = self._params(params, len(ids))
        if params.max_tokens is None and limit is None:
            raise UsageError(f"max_tokens is needed: {self.target.name} has no context limit to stop at")
        return ids, params

    def _params(self, params: SamplingParams | None, num_prompt_tokens: int) -> SamplingParams:
        """Complete parameters: the model's defaults if none were given, a seed, strings turned into ids."""
        if params is None:
            config = getattr(self.target, "generation_config", None)
            params = SamplingParams()
            if config is not None:
                params = SamplingParams.from_generation_config(config, num_prompt_tokens=num_prompt_tokens)
        if not isinstance(params, SamplingParams):
            raise UsageError(f"params is a {type(params).__name__}; it is a SamplingParams, or None for the model's defaults")
        if params.seed is None:
            params = replace(params, seed=secrets.randbits(63))
        if params.bad_words:
            if self.tokenizer is None:
                raise UsageError("bad_words needs a tokenizer; give bad_words_ids instead")
            params = params.resolve(self.tokenizer)
        if params.stop and self.tokenizer is None:
            raise UsageError("stop strings need a tokenizer; give stop_token_ids instead")
        return params

    def _stopper(self, ids: Sequence[int], params: SamplingParams, streams: bool) -> Stopper:
        room = None if self.target.max_length is None else self.target.max_length - len(ids)
        limit = min(n for n in (params.max_tokens, room) if n is not None)
        detokenizer = None
        if self.tokenizer is not None and (streams or params.stop):
            detokenizer = Detokenizer(self.tokenizer, skip_special_tokens=params.skip_special_tokens)
        return Stopper(params, eos_token_ids=self.target.eos_token_ids, limit=limit, detokenizer=detokenizer)

    def _pipeline(self, ids: Sequence[int], params: SamplingParams) -> LawPipeline:
        return LawPipeline(
            params,
            num_prompt_tokens=len(ids),
            vocab_size=self.target.vocab_size,
            eos_token_ids=self.target.eos_token_ids,
        )

    def _generation(self, session: Session, ids: tuple[int, ...], params: SamplingParams, index: int, streams: bool) -> Any:
        raise TypeError("Decoder is the common part; use SpeculativeDecoder, or its .plain")

    def _statistics(self, rounds: Sequence[Round], params: SamplingParams) -> Statistics:
        return statistics(rounds)


class PlainDecoder(Decoder):
    """The target alone. coupled: draw by position-keyed Gumbel noise, as the rule `gumbel` does, so that texts are the same."""

    def __init__(self, target: LanguageModel, tokenizer: Any = None, *, coupled: bool = False) -> None:
        super().__init__(target, tokenizer)
        self.coupled = coupled

    def _generation(
        self, session: Session, ids: tuple[int, ...], params: SamplingParams, index: int, streams: bool
    ) -> PlainGeneration:
        if index > 0:
            params = replace(params, prompt_logprobs=None)
        session.rollback(min(session.length, len(ids) - 1))
        return PlainGeneration(
            session=session,
            context=list(ids),
            params=params,
            pipeline=self._pipeline(ids, params),
            stopper=self._stopper(ids, params, streams),
            chance_at=_chance(self.coupled, params, index),
        )


class SpeculativeDecoder(Decoder):
    """A target with a drafter.

    draft_model: a transformers module, a LanguageModel, a Drafter of your own, or None. target_model: a transformers module
    or a LanguageModel. tokenizer: None means ids in and ids out. device: where live modules are moved, None leaves them.
    speculative_config: vLLM's keys, see `SpeculativeConfig`; with a `draft_model` object, "method" and "model" are implied.
    """

    def __init__(
        self,
        draft_model: Any,
        target_model: Any,
        tokenizer: Any = None,
        device: Any = None,
        *,
        speculative_config: Mapping[str, Any] | SpeculativeConfig | None = None,
    ) -> None:
        from draftproof.decode.build import as_language_model, make_drafter

        super().__init__(as_language_model(target_model, tokenizer, device), tokenizer)
        self.config, self.drafter = make_drafter(draft_model, speculative_config, self.target, tokenizer, device)
        self.rule = _fitting_rule(self.config, self.drafter)

    @classmethod
    def from_pretrained(
        cls,
        target: str,
        *,
        speculative_config: Mapping[str, Any] | None = None,
        drafter: Drafter | None = None,
        dtype: Any = "auto",
        device: Any = "auto",
        **options: Any,
    ) -> SpeculativeDecoder:
        """Load `target`, and the draft model if the config names one, by hub id, folder, GGUF file or short name.

        options: `device_map`, `revision`, `trust_remote_code`, passed on to the target. The config is checked first."""
        from draftproof.models.load import load_model

        config = SpeculativeConfig.from_dict(speculative_config)
        model = load_model(target, dtype=dtype, device=device, **options)
        draft: Any = drafter
        if config.method == "draft_model" and config.model is not None:
            draft = load_model(config.model, dtype=dtype, device=device, revision=config.revision)
        return cls(draft, model, model.tokenizer, speculative_config=config)

    @property
    def plain(self) -> PlainDecoder:
        """Plain decoding with the same target, and with the rule's own kind of draw."""
        return PlainDecoder(self.target, self.tokenizer, coupled=is_coupled(self.rule))

    def _generation(
        self, session: Session, ids: tuple[int, ...], params: SamplingParams, index: int, streams: bool
    ) -> Generation:
        session.rollback(min(session.length, len(ids) - 1))
        length = self._draft_length(params)
        if index > 0:
            params = replace(params, prompt_logprobs=None)
        drafting = self.drafter if length > 0 else None
        return Generation(
            session=session,
            context=list(ids),
            params=params,
            pipeline=self._pipeline(ids, params),
            stopper=self._stopper(ids, params, streams),
            rule=self.rule_for(params),
            chance_at=_chance(is_coupled(self.rule), params, index),
            drafting=drafting.open(Request(ids, params, self._pipeline(ids, params), self.target, index)) if drafting else None,
            wants=drafting.wants if drafting else Generation.wants,
            num_speculative_tokens=length,
            max_nodes=_node_cap(self.drafter),
        )

    def rule_for(self, params: SamplingParams) -> Rule:
        """At temperature 0 every lossless rule is `match`, which needs no laws."""
        return RULES["match"] if params.temperature == 0 and self.rule.lossless else self.rule

    def _draft_length(self, params: SamplingParams) -> int:
        if self.drafter is None:
            if params.num_speculative_tokens:
                raise UsageError("num_speculative_tokens asks for drafts, but this decoder has no drafter (method 'none')")
            return 0
        asked, shape = params.num_speculative_tokens, getattr(self.drafter, "tree", None)
        if asked is not None and shape is not None and asked > shape.depth:
            raise UsageError(
                f"num_speculative_tokens is {asked}, but the tree has {shape.depth} levels; allowed: 0 to {shape.depth}"
            )
        return self.config.num_speculative_tokens if asked is None else asked

    def _statistics(self, rounds: Sequence[Round], params: SamplingParams) -> Statistics:
        rule = self.rule_for(params)
        method = self.drafter.name if self.drafter and self._draft_length(params) else "none"
        return statistics(rounds, method=method, rule=rule.name, lossless=rule.lossless, notes=self.config.notes)


def _node_cap(drafter: Drafter | None) -> int | None:
    """Most nodes of one draft; None for chains, which the draft length bounds."""
    if drafter is None or not drafter.trees:
        return None
    shape = getattr(drafter, "tree", None)
    return MAX_NODES if shape is None else len(shape)


def is_coupled(rule: Rule) -> bool:
    """Whether `rule` asks for shared noise; a rule of the caller's that does not say so does not."""
    return bool(getattr(rule, "coupled", False))


def _chance(coupled: bool, params: SamplingParams, index: int) -> Callable[[int], KeyedChance]:
    """Chance of the rounds of sample `index`, by the committed length at which they begin."""
    return partial(CoupledChance if coupled else KeyedChance, stream_key(params.seed or 0, index))


def _natural_rule(drafter: Drafter) -> str:
    """For fixed drafts `match`, for sampled chains `token`, for sampled trees the rule that accepts the most of them."""
    if "top_k_plus_one" in drafter.selections:
        return "greedy_k" if drafter.selections <= RULES["greedy_k"].selections else "match"
    if drafter.trees:
        return "traversal" if {"iid", "without_replacement"} & drafter.selections else "match"
    return "token" if {"iid", "without_replacement"} & drafter.selections else "match"


def _fitting_rule(config: SpeculativeConfig, drafter: Drafter | None) -> Rule:
    """The rule asked for, or the drafter's natural one; UsageError when it cannot verify what the drafter builds."""
    if drafter is None:
        return RULES[config.rule_name or "match"]
    name = config.rule_name or _natural_rule(drafter)
    rule = RULES[name]
    if not drafter.selections <= rule.selections:
        missing = ", ".join(sorted(drafter.selections - rule.selections))
        raise UsageError(f"rule {name!r} cannot verify {missing} drafts, which method {drafter.name!r} makes; use 'match'")
    if drafter.trees and not rule.trees:
        raise UsageError(f"rule {name!r} verifies chains only, and method {drafter.name!r} makes trees; use 'match'")
    return rule
