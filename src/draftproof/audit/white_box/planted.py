"""draftproof's own decoder with one fault planted, for showing that an audit sees it and names it.

The faults are those of public decoders (`audit/mutants.py`), at any vocabulary, and faults of what
surrounds a rule: a draft law other than the one drawn from, a processor that does not see the
drafts, a random number used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from draftproof.audit.engines.ours import OurEngine, RecordingRule
from draftproof.audit.engines.rounds import RecordedRound
from draftproof.audit.mutants import CHAIN_MUTANTS, Verify
from draftproof.audit.white_box import alternatives
from draftproof.core import faults
from draftproof.core.chance import Chance, KeyedChance, Purpose
from draftproof.core.laws import as_numpy, inverse_cdf
from draftproof.core.params import SamplingParams
from draftproof.core.records import ROOT, Array, Draft, Verdict
from draftproof.core.rules import RULES
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.decode.decoder import SpeculativeDecoder

MUTANTS = {mutant.name: mutant.verify for mutant in CHAIN_MUTANTS}


@dataclass(frozen=True)
class Fault:
    """verify: the wrong rule, None where the rule is right. alter: what is done to drafts before.
    params: from those asked for and a function that gives the committed text, those really decoded
    with. cause: what an audit should say; None where it may say anything."""

    verify: Verify | None = None
    alter: Callable[[Draft], Draft] = lambda draft: draft
    params: Callable[[SamplingParams, Callable[[], Sequence[int]]], SamplingParams] = (
        lambda params, committed: params
    )
    cause: str | None = None


class _InFloat64:
    """The target's laws as NumPy rows, for rules that know no tensors."""

    def __init__(self, laws: TargetLaws) -> None:
        self._laws = laws

    def row(self, node: int) -> Array:
        return np.asarray(as_numpy(self._laws.row(node)), dtype=np.float64)

    def rows(self, nodes: Sequence[int]) -> Array:
        return np.stack([self.row(node) for node in nodes])

    def draw(self, node: int, chance: Chance) -> Any:
        return chance.draw_target(self.row(node), node + 1)


@dataclass
class _Reusing:
    """Chance that draws a replacement with the number that drew the draft it replaces."""

    chance: KeyedChance
    tried: int = 0

    def bernoulli(self, probability: float, purpose: Purpose, node: int) -> bool:
        self.tried = node
        return self.chance.bernoulli(probability, purpose, node)

    def draw(self, law: Array, purpose: Purpose, node: int) -> Any:
        if purpose is not Purpose.REPLACEMENT:
            return self.chance.draw(law, purpose, node)
        return inverse_cdf(law, self.chance.uniform(Purpose.DRAFT, self.tried))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.chance, name)


class _PlantedRule(Rule):
    """A chain rule with a fault in it, under the name of the right one."""

    def __init__(self, verify: Verify, rule: Rule) -> None:
        self._verify = verify
        self.name, self.lossless, self.selections = rule.name, True, rule.selections
        self.trees, self.coupled = rule.trees, rule.coupled
        self.text_follows_seed = rule.text_follows_seed

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        laws = {
            parent: np.asarray(as_numpy(law), dtype=np.float64)
            for parent, law in draft.laws.items()
        }
        return self._verify(replace(draft, laws=laws), _InFloat64(target_laws), chance)


def _with_reused_noise(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    assert isinstance(chance, KeyedChance)
    return RULES["token"].verify(draft, laws, _Reusing(chance))


def _tempered_laws(draft: Draft) -> Draft:
    """The ratio is told of drafts at temperature 1.4; they were drawn at 1."""
    return replace(
        draft, laws={parent: law**0.7 / (law**0.7).sum() for parent, law in draft.laws.items()}
    )


def _laws_one_late(draft: Draft) -> Draft:
    """The ratio is told the law that the draft before was drawn from."""
    return replace(draft, laws={parent: draft.laws[max(parent - 1, ROOT)] for parent in draft.laws})


def _stale_penalty(
    params: SamplingParams, committed: Callable[[], Sequence[int]]
) -> SamplingParams:
    """The repetition penalty sees the text as it was when the round began."""
    penalty = params.repetition_penalty

    def processor(input_ids: Any, scores: Any) -> Any:
        xp = array_namespace(scores)
        seen = sorted(set(committed()))
        kept = scores[..., seen]
        changed = xp.asarray(scores, copy=True)
        changed[..., seen] = xp.where(kept > 0, kept / penalty, kept * penalty)
        return changed

    return replace(params, repetition_penalty=1.0, logits_processors=(processor,))


FAULTS: dict[str, Fault] = {
    "no residual": Fault(
        MUTANTS["correction from the target's law, no residual"], cause=faults.NO_RESIDUAL
    ),
    "wrong q": Fault(alter=_laws_one_late, cause=faults.WRONG_DRAFT_LAW),
    "temperature on one side": Fault(alter=_tempered_laws, cause=faults.TEMPERATURE),
    "arg max": Fault(
        MUTANTS["accept iff arg max, else draw from the target"], cause=faults.ARG_MAX
    ),
    "off by one": Fault(MUTANTS["target row off by one position"], cause=faults.OFF_BY_ONE),
    "stale processor": Fault(params=_stale_penalty, cause=alternatives.STALE),
    "reused noise": Fault(_with_reused_noise, cause=faults.REUSED_NOISE),
    "ratio inverted": Fault(MUTANTS["ratio inverted"], cause=faults.INVERTED),
    "keep verifying": Fault(
        MUTANTS["keep verifying after a rejection"], cause=alternatives.KEEPS_VERIFYING
    ),
    "match, then a fresh redraw": Fault(
        MUTANTS["match, then a fresh redraw"], cause=alternatives.SAMPLE_AND_MATCH
    ),
    "bonus at another temperature": Fault(
        MUTANTS["bonus at another temperature"], cause=faults.TEMPERATURE
    ),
}
"""Name -> fault. They are planted in sampled chains under the rule `token`; "stale processor" needs
a repetition penalty."""


class PlantedEngine(OurEngine):
    """A decoder of ours with a fault, which still claims the rule it was made with."""

    def __init__(self, decoder: SpeculativeDecoder, fault: Fault) -> None:
        super().__init__(decoder)
        self._fault = fault
        self._committed: tuple[int, ...] = ()
        rule = decoder.rule if fault.verify is None else _PlantedRule(fault.verify, decoder.rule)
        self._recording = RecordingRule(rule, fault.alter)
        self._decoder = decoder.with_rule(self._recording)

    def rounds(self, prompt: Sequence[int], params: SamplingParams) -> Iterator[RecordedRound]:
        self._committed = tuple(prompt)
        yield from super().rounds(prompt, self._fault.params(params, lambda: self._committed))

    def heard(self, seen: RecordedRound) -> None:
        self._committed = (*seen.context, *seen.tokens)
