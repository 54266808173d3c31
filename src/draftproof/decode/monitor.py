"""Watch a decoder while it works: is every emitted token still drawn from the law the target gave?

Two martingales, on what verification has at hand anyway. The bets of `core/wealth.py` on the
emitted tokens: that they ever win 1/level has at most the probability `level` while the text is
exact. And accepted drafts less their chances of acceptance, for rules that decide one draft after
another: a draft law that is not the one drawn from shows there first.

What the target's law itself should be is not looked at: that is the audit's part, with a copy of
the target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.core.chance import Chance
from draftproof.core.faults import quick_ratios
from draftproof.core.laws import as_numpy
from draftproof.core.records import ROOT, Array, Draft, Verdict
from draftproof.core.rules.protocol import Rule, TargetLaws
from draftproof.core.wealth import FLOOR, MOST, LastingWealth
from draftproof.errors import UsageError

Vector = NDArray[np.float64]
LEVEL = 1e-3
SEQUENTIAL = ("token", "match")
"""Rules that accept one draft after another on a chain, with a chance that is known before."""


class MonitoredRule(Rule):
    """A rule that notes what it saw and decided, over all texts made with it. UsageError for a
    lossy one. For one call of a decoder, whose rows may run on several threads."""

    def __init__(self, rule: Rule) -> None:
        if not rule.lossless:
            raise UsageError(
                f"rule {rule.name!r} changes the target's law by design: there is "
                "nothing to monitor"
            )
        self._rule = rule
        self.name, self.lossless, self.selections = rule.name, rule.lossless, rule.selections
        self.trees, self.coupled = rule.trees, rule.coupled
        self.text_follows_seed = rule.text_follows_seed
        self.wealth = LastingWealth()
        self.excess = self.variance = self.seconds = 0.0
        self.num_decided = 0
        self._lock = Lock()

    def verify(self, draft: Draft, target_laws: TargetLaws, chance: Chance) -> Verdict:
        verdict = self._rule.verify(draft, target_laws, chance)
        with self._lock:
            began = perf_counter()
            self._note(draft, target_laws, verdict)
            self.seconds += perf_counter() - began
        return verdict

    def document(self) -> Mapping[str, Any]:
        """log_e: log of the bets' wealth now; p_value: of the highest it has been, valid whenever
        one looks. acceptance_z: accepted drafts less their chances, in standard deviations, None
        for rules that are not sequential. seconds: what watching took, over all texts. exact:
        neither contradicts it at `level`, each with half of it; None where nothing could be tested,
        and `note` says why."""
        found: dict[str, Any] = {
            "level": LEVEL,
            "num_tokens": self.wealth.n,
            "log_e": self.wealth.log_e,
        }
        found["p_value"] = math.exp(-self.wealth.highest)
        z = self.excess / math.sqrt(self.variance) if self.variance > 0 else None
        found |= {"num_decided": self.num_decided, "acceptance_z": z, "seconds": self.seconds}
        if self.wealth.n == 0:
            note = (
                "nothing to test: at temperature 0, or without drafts, no token was drawn "
                "that could show anything"
            )
            return found | {"exact": None, "likely_cause": None, "note": note}
        by_acceptance = 1.0 if z is None else math.erfc(abs(z) / math.sqrt(2.0))
        exact = min(found["p_value"], by_acceptance) > LEVEL / 2
        cause = None if exact else next(iter(self.wealth.by_cause()))
        return found | {"exact": exact, "likely_cause": cause, "note": None}

    def _note(self, draft: Draft, laws: TargetLaws, verdict: Verdict) -> None:
        before: Vector | None = None
        for place, node in enumerate((ROOT, *verdict.path)):
            follows = verdict.path[place] if place < len(verdict.path) else None
            if node in draft.ends:
                return
            token = verdict.token if follows is None else draft.tokens[follows]
            law, drawn_from = _vector(laws.row(node)), draft.laws.get(node)
            draft_law = None if drawn_from is None else _vector(drawn_from)
            if self.name in SEQUENTIAL and draft.is_chain and node + 1 < len(draft):
                self._note_decision(law, draft_law, draft.tokens[node + 1], follows is not None)
            if float(law[token]) < 1.0 - FLOOR:
                ratios = quick_ratios(law, token, draft_law, before)
                self.wealth.see([(cause, min(MOST, ratio)) for cause, ratio in ratios])
            before = law

    def _note_decision(
        self, law: Vector, draft_law: Vector | None, token: int, accepted: bool
    ) -> None:
        chance = float(law[token])
        if self.name == "token" and draft_law is not None:
            chance = min(1.0, chance / max(float(draft_law[token]), 1e-300))
        self.num_decided += 1
        self.excess += accepted - chance
        self.variance += chance * (1.0 - chance)


def _vector(law: Array) -> Vector:
    return np.asarray(as_numpy(law), dtype=np.float64)
