"""`SpeculativeDecoder`: the public face of decoding. `decoder.plain` is the same target without speculation, the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from draftproof.core.chance import stream_key
from draftproof.core.params import SamplingParams
from draftproof.core.rules import RULES, natural_rule
from draftproof.core.rules.protocol import Rule
from draftproof.core.tree import MAX_NODES
from draftproof.decode.adapt import length_controller, with_costs
from draftproof.decode.base import Decoder as Decoder
from draftproof.decode.base import OpenDrafter, PlainDecoder, chance_for
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.generation import Generation
from draftproof.decode.monitor import MonitoredRule, monitored
from draftproof.decode.samples import Sample
from draftproof.decode.statistics import Statistics
from draftproof.drafters.protocol import Drafter, Request
from draftproof.drafters.stores.memory import take_opening
from draftproof.errors import UsageError
from draftproof.models.protocol import Session

FOLLOWS_CLOCK = 'adaptive "live" follows the clock: the seed may give another text of the same law the next time'
"""Said of a text that only chance would repeat."""
FOLLOWS_MEMORY = "drafts may hold what earlier requests wrote: the seed gives this text again only after the same requests"
"""Said of a text over a store that outlives its request."""


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
        self.draft_schedule = self.config.schedule
        self.config = with_costs(self)
        length_controller(self.config, self.drafter)  # refuses costs of other drafters

    @classmethod
    def from_pretrained(
        cls,
        target: str,
        *,
        speculative_config: Mapping[str, Any] | None = None,
        drafter: Drafter | None = None,
        dtype: Any = "auto",
        device: Any = "auto",
        engine: str = "auto",
        quantization: str | None = None,
        **options: Any,
    ) -> SpeculativeDecoder:
        """Load `target`, and the draft model if the config names one, by hub id, folder, GGUF file or short name.

        drafter: one of your own in the place of a method; the config then only says length and rule. engine, quantization (of
        the target): see `draftproof.models.engine.load_engine`; both models run on the same engine. options: `device_map`,
        `revision`, passed on to the target; `trust_remote_code`, for target and draft model. The config is checked first."""
        from draftproof.decode.build import contradiction
        from draftproof.models.place import check_place

        config = SpeculativeConfig.from_dict(speculative_config)
        if drafter is not None and config.method != "none":
            raise UsageError(contradiction(config.method, drafter))
        wanted = config.draft_model
        if wanted is not None and wanted.model is not None:
            check_place(wanted.model, wanted.revision)  # not after minutes of loading the target
        from draftproof.models.engine import check_engine, load_engine

        check_engine(engine, quantization)
        how = {"dtype": dtype, "device": device, "engine": engine}
        model = load_engine(target, quantization=quantization, **how, **options)
        draft: Any = drafter
        if wanted is not None:
            assert wanted.model is not None
            own: dict[str, Any] = {"revision": wanted.revision, "quantization": wanted.quantization}
            draft = load_engine(wanted.model, trust_remote_code=bool(options.get("trust_remote_code")), **own, **how)
        return cls(draft, model, model.tokenizer, speculative_config=config if drafter is None else speculative_config)

    @property
    def longest_draft(self) -> int:
        """Most tokens of one draft."""
        return _node_cap(self.drafter) or self.config.num_speculative_tokens

    @property
    def plain(self) -> PlainDecoder:
        """Plain decoding with the same target, and with the rule's own kind of draw."""
        return PlainDecoder(self.target, self.tokenizer, coupled=self.rule.coupled)

    def monitored(self) -> SpeculativeDecoder:
        return monitored(self)

    def _generation(
        self,
        session: Session,
        ids: tuple[int, ...],
        params: SamplingParams,
        index: int,
        streams: bool,
        open_drafter: OpenDrafter | None = None,
    ) -> Generation:
        length = self._draft_length(params)
        drafter = self.drafter_for(params)
        if open_drafter is None and self.reads_states(params):
            session.rollback(0)
        session.rollback(min(session.length, len(ids) - 1))
        if index > 0:
            params = replace(params, prompt_logprobs=None)
        pipeline, drafting = self._pipeline(ids, params), None
        if drafter is not None:
            request = Request(ids, params, self._pipeline(ids, params, pipeline), self.target, index)
            drafting = drafter.open(request) if open_drafter is None else open_drafter(drafter, request)
        return Generation(
            session=session,
            context=list(ids),
            params=params,
            pipeline=pipeline,
            stopper=self._stopper(ids, params, streams),
            rule=self.rule_for(params),
            chance_at=chance_for(self.rule.coupled, self._stream(ids, params, index)),
            drafting=drafting,
            owns_drafting=open_drafter is None,
            wants=drafter.wants if drafter else Generation.wants,
            num_speculative_tokens=length,
            max_nodes=_node_cap(self.drafter),
            length=length_controller(self.config, drafter),
        )

    def drafter_for(self, params: SamplingParams) -> Drafter | None:
        """The drafter, unless these parameters ask for plain decoding. UsageError for a prediction that nothing reads."""
        if params.num_speculative_tokens == 0:
            return None
        reads = self.drafter is not None and self.drafter.wants.prediction
        if params.prediction is not None and not reads:
            method = "none" if self.drafter is None else self.drafter.name
            raise UsageError(
                f"a prediction is read by method 'prediction', alone or among the drafters of 'auto'; this is {method!r}"
            )
        return self.drafter if self._draft_length(params) > 0 else None

    def _stream(self, ids: tuple[int, ...], params: SamplingParams, index: int) -> tuple[int, int]:
        """The stream of sample `index`: plain decoding's where the text follows the seed; elsewhere no request over a memory
        shares it with another one, and none over texts that were there before with one that may have written them."""
        drafter = None if self.rule.text_follows_seed else self.drafter
        if drafter is None:
            return stream_key(params.seed or 0, index, prompt=ids)
        known = [*([drafter.known_texts] if drafter.known_texts else []), *(params.prediction or ())]
        return stream_key(params.seed or 0, index, prompt=ids, opening=take_opening(drafter.memories), known=known)

    def rule_for(self, params: SamplingParams) -> Rule:
        """At temperature 0 every lossless rule is `match`, which needs no laws."""
        return RULES["match"] if params.temperature == 0 and self.rule.lossless else self.rule

    def _draft_length(self, params: SamplingParams) -> int:
        if self.drafter is None:
            if params.num_speculative_tokens:
                raise UsageError("num_speculative_tokens asks for drafts, but this decoder has no drafter (method 'none')")
            return 0
        asked, shape = params.num_speculative_tokens, self.drafter.tree
        if asked is not None and shape is not None and asked > shape.depth:
            raise UsageError(
                f"num_speculative_tokens is {asked}, but the tree has {shape.depth} levels; allowed: 0 to {shape.depth}"
            )
        return self.config.num_speculative_tokens if asked is None else asked

    def statistics(self, samples: Sequence[Sample], params: SamplingParams) -> Statistics:
        """The totals of samples of one request, with the method and the rule that made them."""
        totals, rule, drafter = super().statistics(samples, params), self.rule_for(params), self.drafter_for(params)
        said = (*self.config.notes, *totals.notes)
        if drafter is not None and not rule.text_follows_seed:
            clock = (FOLLOWS_CLOCK,) if self.config.length_rule == "live" else ()
            said = (*clock, *((FOLLOWS_MEMORY,) if drafter.memories else ()), *said)
        notes = tuple(dict.fromkeys(said))
        method = drafter.name if drafter else "none"
        monitor = self.rule.document() if isinstance(self.rule, MonitoredRule) else None
        return replace(totals, method=method, rule=rule.name, lossless=rule.lossless, notes=notes, monitor=monitor)


def _node_cap(drafter: Drafter | None) -> int | None:
    """Most nodes of one draft; None for chains, which the draft length bounds."""
    if drafter is None or not drafter.trees:
        return None
    shape = drafter.tree
    return MAX_NODES if shape is None else len(shape)


def _fitting_rule(config: SpeculativeConfig, drafter: Drafter | None) -> Rule:
    """The rule asked for, or the drafter's natural one; UsageError when it cannot verify what the drafter builds."""
    if drafter is None:
        return RULES[config.rule_name or "match"]
    name = config.rule_name or natural_rule(drafter.selections, drafter.trees)
    rule = RULES[name]
    if not drafter.selections <= rule.selections:
        missing = ", ".join(sorted(drafter.selections - rule.selections))
        raise UsageError(f"rule {name!r} cannot verify {missing} drafts, which method {drafter.name!r} makes; use 'match'")
    if drafter.trees and not rule.trees:
        raise UsageError(f"rule {name!r} verifies chains only, and method {drafter.name!r} makes trees; use 'match'")
    return rule
