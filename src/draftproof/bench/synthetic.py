"""Acceptance by chance in place of acceptance by law, while every real cost stays: to plan a draft
that does not exist yet.

The drafter drafts, the target verifies, the natural rule computes its verdict, and then coins
decide how much is kept. The text is worthless and its law is not the target's, which is why every
name here says lossy.
"""

from __future__ import annotations

from collections.abc import Sequence

from draftproof.core.chance import Chance, Purpose
from draftproof.core.formulas import expected_tokens_by_position
from draftproof.core.records import ROOT, Draft, Selection, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.errors import UsageError

_COINS = 1 << 20
"""Nodes of the coins, far from those of any draft, so that no key is used twice."""


class SyntheticRule(Rule):
    """natural: the rule whose work is done and thrown away. rates: chance that draft i is kept once
    reached; the last one goes on for longer drafts."""

    name = "synthetic_lossy"
    lossless = False
    trees = False
    coupled = False
    text_follows_seed = False

    def __init__(self, natural: Rule, rates: tuple[float, ...]) -> None:
        self.natural, self.rates = natural, rates
        self.selections: frozenset[Selection] = natural.selections

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        """Do the natural rule's work, then keep the leading successes of independent coins."""
        verdict = self.natural.verify(draft, target_laws, chance)
        if not draft.tokens:
            return verdict
        kept = 0
        while kept < len(draft) and chance.bernoulli(
            self._rate(kept), Purpose.ACCEPT, _COINS + kept
        ):
            kept += 1
        if kept == len(verdict.path):
            return verdict
        return Verdict(
            tuple(range(kept)), int(target_laws.draw(kept - 1 if kept else ROOT, chance))
        )

    def _rate(self, position: int) -> float:
        return self.rates[min(position, len(self.rates) - 1)]


def parse_rates(text: str) -> tuple[float, ...]:
    """`0.8` or, by position, `0.9,0.8,0.6`; UsageError for anything else."""
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"--synthetic-alpha is a rate or rates by position, as 0.8 or 0.9,0.8,0.6; got {text!r}"
        ) from None
    expected_tokens_by_position(rates)
    return rates


def make_synthetic(
    decoder: SpeculativeDecoder, rates: Sequence[float], greedy: bool
) -> SpeculativeDecoder:
    """The same decoder with acceptance by chance. greedy: temperature 0, where the natural rule is
    `match`."""
    from draftproof.core.rules import RULES

    if decoder.drafter is not None and decoder.drafter.trees:
        raise UsageError("--synthetic-alpha is for chains; this drafter makes trees")
    natural = RULES["match"] if greedy else decoder.rule
    return decoder.with_rule(SyntheticRule(natural, tuple(rates)))
