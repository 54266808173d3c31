"""`SpeculativeDecoder`: the public face of decoding. `decoder.plain` is the same target without
speculation, the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from threading import Lock
from typing import Any

from draftproof.core.params import SamplingParams
from draftproof.core.rules.protocol import Rule
from draftproof.decode.base import Decoder as Decoder
from draftproof.decode.base import PlainDecoder
from draftproof.decode.build import as_language_model, contradiction, make_drafter
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.cost_tables import with_costs
from draftproof.decode.monitor import MonitoredRule
from draftproof.decode.speculation import Speculation
from draftproof.drafters.protocol import Drafter
from draftproof.errors import UsageError
from draftproof.models.engine import check_engine, load_engine
from draftproof.models.place import check_place


class SpeculativeDecoder(Decoder):
    """A target with a drafter.

    draft_model: a transformers module, a LanguageModel, a Drafter of your own, or None.
    target_model: a transformers module or a LanguageModel. tokenizer: None means ids in and ids
    out. device: where live modules are moved, None leaves them. speculative_config: vLLM's keys,
    see `SpeculativeConfig`; with a `draft_model` object, "method" and "model" are implied."""

    def __init__(
        self,
        draft_model: Any,
        target_model: Any,
        tokenizer: Any = None,
        device: Any = None,
        *,
        speculative_config: Mapping[str, Any] | SpeculativeConfig | None = None,
    ) -> None:
        super().__init__(as_language_model(target_model, tokenizer, device), tokenizer)
        self._speculation: Speculation = Speculation.of(
            *make_drafter(draft_model, speculative_config, self.target, tokenizer, device)
        )
        self._measuring = Lock()

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
        """Load `target`, and the draft model if the config names one, by hub id, folder, GGUF file
        or short name.

        drafter: one of your own in the place of a method; the config then only says length and
        rule. engine, quantization (of the target): see `draftproof.models.engine.load_engine`; both
        models run on the same engine. options: `device_map`, `revision`, passed on to the target;
        `trust_remote_code`, for target and draft model. The config is checked first."""
        config = SpeculativeConfig.from_dict(speculative_config)
        if drafter is not None and config.method != "none":
            raise UsageError(contradiction(config.method, drafter))
        wanted = config.draft_model
        if wanted is not None and wanted.model is not None:
            check_place(wanted.model, wanted.revision)  # not after minutes of loading the target
        check_engine(engine, quantization)
        how = {"dtype": dtype, "device": device, "engine": engine}
        model = load_engine(target, quantization=quantization, **how, **options)
        draft: Any = drafter
        if wanted is not None:
            assert wanted.model is not None
            own: dict[str, Any] = {"revision": wanted.revision, "quantization": wanted.quantization}
            draft = load_engine(
                wanted.model, trust_remote_code=bool(options.get("trust_remote_code")), **own, **how
            )
        return cls(
            draft,
            model,
            model.tokenizer,
            speculative_config=config if drafter is None else speculative_config,
        )

    @property
    def speculation(self) -> Speculation:
        """How texts are drafted and verified, costs measured where they count."""
        self.measure_costs()
        return self._speculation

    def measure_costs(self) -> None:
        with self._measuring:
            self._speculation = with_costs(self.target, self._speculation)

    @property
    def config(self) -> SpeculativeConfig:
        """The complete configuration, its table of costs included: what repeats a run on another
        day."""
        return self.speculation.config

    @property
    def rule(self) -> Rule:
        """The rule that verifies drafts; at temperature 0 see `rule_for`."""
        return self._speculation.rule

    @property
    def longest_draft(self) -> int:
        """Most tokens of one draft."""
        return self._speculation.longest_draft

    @property
    def plain(self) -> PlainDecoder:
        """Plain decoding with the same target, and with the rule's own kind of draw."""
        return PlainDecoder(self.target, self.tokenizer, coupled=self.rule.coupled)

    def rule_for(self, params: SamplingParams) -> Rule:
        """The rule under these parameters."""
        return self._speculation.rule_for(params)

    def with_rule(self, rule: Rule) -> SpeculativeDecoder:
        """A copy that verifies by `rule`, be it right or wrong."""
        changed = copy(self)
        changed._speculation = replace(self._speculation, rule=rule)
        return changed

    def monitored(self) -> SpeculativeDecoder:
        self.measure_costs()  # once, and not by every copy
        return self.with_rule(MonitoredRule(self.rule))
