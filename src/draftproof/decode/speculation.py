"""All that decoding knows of drafting beside the target, as one value: the drafter, the rule, the
lengths and their costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from draftproof.core.chance import Chance, KeyedChance, stream_key
from draftproof.core.coupled import CoupledChance
from draftproof.core.params import SamplingParams
from draftproof.core.rules import RULES, natural_rule
from draftproof.core.rules.protocol import Rule
from draftproof.core.tree import MAX_NODES
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.controllers import length_controller
from draftproof.decode.length import LengthController
from draftproof.decode.monitor import MonitoredRule
from draftproof.decode.statistics import Statistics
from draftproof.drafters.protocol import Drafter
from draftproof.drafters.stores.memory import take_opening
from draftproof.errors import UsageError

ChanceAt = Callable[[int], Chance]
"""Chance of a text's rounds, by the committed length at which they begin."""

FOLLOWS_CLOCK = (
    'adaptive "live" follows the clock: the seed may give another text of the same law '
    "the next time"
)
"""Said of a text that only chance would repeat."""
FOLLOWS_MEMORY = (
    "drafts may hold what earlier requests wrote: the seed gives this text again only "
    "after the same requests"
)
"""Said of a text over a store that outlives its request."""


@dataclass(frozen=True, eq=False)
class Speculation:
    """How a target's texts are drafted and verified. drafter: None for method "none", whose texts
    are drawn without drafts.

    config: with its table of costs, where lengths are weighed by one and texts are to be made."""

    config: SpeculativeConfig
    drafter: Drafter | None
    rule: Rule

    @classmethod
    def of(cls, config: SpeculativeConfig, drafter: Drafter | None) -> Speculation:
        """With the rule that the config names or the drafter has by nature. UsageError for what
        does not go together."""
        length_controller(config, drafter)  # refuses costs of other drafters
        return cls(config, drafter, _fitting_rule(config, drafter))

    @property
    def longest_draft(self) -> int:
        """Most tokens of one draft."""
        return self.max_nodes or self.config.num_speculative_tokens

    @property
    def max_nodes(self) -> int | None:
        """Most nodes of one draft; None for chains, which the draft length bounds."""
        if self.drafter is None or not self.drafter.trees:
            return None
        shape = self.drafter.tree
        return MAX_NODES if shape is None else len(shape)

    def drafter_for(self, params: SamplingParams) -> Drafter | None:
        """The drafter, unless these parameters ask for plain decoding. UsageError for a prediction
        that nothing reads."""
        if params.num_speculative_tokens == 0:
            return None
        reads = self.drafter is not None and self.drafter.wants.prediction
        if params.prediction is not None and not reads:
            method = "none" if self.drafter is None else self.drafter.name
            raise UsageError(
                "a prediction is read by method 'prediction', alone or among the "
                f"drafters of 'auto'; this is {method!r}"
            )
        return self.drafter if self.draft_length(params) > 0 else None

    def draft_length(self, params: SamplingParams) -> int:
        """The draft length of a request with these parameters. UsageError for one that the drafter
        does not have."""
        if self.drafter is None:
            if params.num_speculative_tokens:
                raise UsageError(
                    "num_speculative_tokens asks for drafts, but this decoder has no "
                    "drafter (method 'none')"
                )
            return 0
        asked, shape = params.num_speculative_tokens, self.drafter.tree
        if asked is not None and shape is not None and asked > shape.depth:
            raise UsageError(
                f"num_speculative_tokens is {asked}, but the tree has {shape.depth} "
                f"levels; allowed: 0 to {shape.depth}"
            )
        return self.config.num_speculative_tokens if asked is None else asked

    def rule_for(self, params: SamplingParams) -> Rule:
        """At temperature 0 every lossless rule is `match`, which needs no laws."""
        return RULES["match"] if params.temperature == 0 and self.rule.lossless else self.rule

    def reads_states(self, params: SamplingParams) -> bool:
        """Whether the drafter needs the target's hidden states over the whole text: a new session
        of it cannot go on from a prompt that was read before."""
        drafter = self.drafter_for(params)
        return drafter is not None and bool(drafter.wants.hidden)

    def length_controller(self, params: SamplingParams) -> LengthController | None:
        """What decides about the draft lengths of one text."""
        return length_controller(self.config, self.drafter_for(params))

    def chance_of(self, prompt: tuple[int, ...], params: SamplingParams, index: int) -> ChanceAt:
        """The chance of text `index` of a request: plain decoding's where the text follows the
        seed; elsewhere no request over a memory shares it with another one, and none over texts
        that were there before with one that may have written them."""
        opening, known = 0, list[int]()
        if self.drafter is not None and not self.rule.text_follows_seed:
            opening = take_opening(self.drafter.memories)
            known = [
                *([self.drafter.known_texts] if self.drafter.known_texts else []),
                *(params.prediction or ()),
            ]
        stream = stream_key(params.seed or 0, index, prompt=prompt, opening=opening, known=known)
        return chance_of(stream, coupled=self.rule.coupled)

    def described(self, totals: Statistics, params: SamplingParams) -> Statistics:
        """`totals` of a request's rounds, with the method and the rule that made them."""
        rule, drafter = self.rule_for(params), self.drafter_for(params)
        said = (*self.config.notes, *totals.notes)
        if drafter is not None and not rule.text_follows_seed:
            clock = (FOLLOWS_CLOCK,) if self.config.length_rule == "live" else ()
            said = (*clock, *((FOLLOWS_MEMORY,) if drafter.memories else ()), *said)
        return replace(
            totals,
            method=drafter.name if drafter else "none",
            rule=rule.name,
            lossless=rule.lossless,
            notes=tuple(dict.fromkeys(said)),
            monitor=self.rule.document() if isinstance(self.rule, MonitoredRule) else None,
        )


def chance_of(stream: tuple[int, int], *, coupled: bool = False) -> ChanceAt:
    """The chance of one stream's rounds. coupled: by noise that drafter and target share."""
    return partial(CoupledChance if coupled else KeyedChance, stream)


def _fitting_rule(config: SpeculativeConfig, drafter: Drafter | None) -> Rule:
    """The rule asked for, or the drafter's natural one; UsageError when it cannot verify what the
    drafter builds."""
    if drafter is None:
        return RULES[config.rule_name or "match"]
    name = config.rule_name or natural_rule(drafter.selections, drafter.trees)
    rule = RULES[name]
    if not drafter.selections <= rule.selections:
        missing = ", ".join(sorted(drafter.selections - rule.selections))
        raise UsageError(
            f"rule {name!r} cannot verify {missing} drafts, which method "
            f"{drafter.name!r} makes; use 'match'"
        )
    if drafter.trees and not rule.trees:
        raise UsageError(
            f"rule {name!r} verifies chains only, and method {drafter.name!r} makes "
            "trees; use 'match'"
        )
    return rule
