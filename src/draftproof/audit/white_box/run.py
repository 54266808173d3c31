"""Record an engine's rounds, test them, and say what they show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftproof.audit.engines.rounds import RecordedRound, RoundEngine
from draftproof.audit.white_box import alternatives
from draftproof.audit.white_box.battery import Battery
from draftproof.audit.white_box.finding import Finding
from draftproof.audit.white_box.scorer import Scorer
from draftproof.audit.white_box.streams import Bets
from draftproof.core.params import SamplingParams
from draftproof.core.rules import RULES
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel

Tell = Callable[[str, int, int], None]
MISSED = 0.05
"""The chance of missing a bias of the size that is called detectable."""
COARSEST = 0.25
"""What could not even show a bias of this total variation a token is no verdict."""


@dataclass(frozen=True)
class Reading:
    """Rounds as one rule explains them. findings: of its tests; level: what they are held against, all together."""

    rule: str
    battery: Battery
    findings: tuple[Finding, ...]
    level: float

    @property
    def significant(self) -> tuple[Finding, ...]:
        """The findings that an exact engine would give with a chance of at most `level`, Bonferroni over all of them."""
        share = self.level / max(len(self.findings), 1)
        return tuple(one for one in self.findings if p_value(one) <= share)

    @property
    def contradicted(self) -> bool:
        return bool(self.significant or self.battery.faults)

    @property
    def doubt(self) -> float:
        """-log of the least p-value: how badly the rule explains the rounds."""
        return (
            math.inf if self.battery.faults else max((-math.log(max(p_value(f), 1e-300)) for f in self.findings), default=0.0)
        )


@dataclass(frozen=True)
class WhiteBox:
    """What the rounds of an engine show. claimed: the rule the engine claims; reading: as the rule that explains them best."""

    engine: str
    claimed: str
    reading: Reading
    rounding: float
    level: float

    @property
    def outcome(self) -> str:
        """ "exact", "not exact" or "cannot tell"."""
        if self.reading.contradicted:
            return "not exact"
        return "exact" if self.detectable is not None and self.detectable <= COARSEST else "cannot tell"

    @property
    def detectable(self) -> float | None:
        """The total variation between tokens and their law, in the tests' order, that would have been seen with probability 0.95;
        None without tokens. By the inequality of Dvoretzky, Kiefer and Wolfowitz, which is on the safe side."""
        drawn = self.reading.battery.replacements.bets.n + self.reading.battery.target_draws.bets.n
        tests = max(len(self.reading.findings), 1)
        return None if drawn == 0 else min(detectable(drawn, self.level / tests), 1.0)

    @property
    def cause(self) -> str | None:
        return likely_cause(self.reading) if self.outcome == "not exact" else None

    @property
    def notes(self) -> list[str]:
        """What is no fault, but worth knowing."""
        battery, notes = self.reading.battery, []
        if battery.num_missing_bonus and not self.reading.contradicted:
            missing = f"{battery.num_missing_bonus} of {battery.num_bonus_due} rounds whose drafts were all accepted gave no bonus token"
            notes.append(f"{missing}: exact, but slower than it need be")
        if self.reading.rule != self.claimed and not self.reading.contradicted:
            accepted = f"rule {self.reading.rule!r} explains the rounds, not {self.claimed!r} as claimed"
            notes.append(f"{accepted}: exact, with another acceptance")
        return notes


def detectable(n: int, level: float) -> float:
    """The distance that a Kolmogorov test of n numbers at `level` sees with probability 0.95 at least."""
    return math.sqrt(math.log(2.0 / level) / (2.0 * n)) + math.sqrt(math.log(2.0 / MISSED) / (2.0 * n))


def p_value(finding: Finding) -> float:
    """A finding's p-value; an e-value's is its inverse, at most 1."""
    if finding.p_value is not None:
        return finding.p_value
    assert finding.e_value is not None
    return min(1.0, 1.0 / max(finding.e_value, 1e-300))


def audit_white_box(
    engine: RoundEngine,
    target: LanguageModel,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    *,
    level: float = 1e-3,
    tell: Tell = lambda what, done, total: None,
) -> WhiteBox:
    """Test the rounds of one text a prompt. target: the auditor's own copy of the engine's target.

    level: the chance, at most, that an exact engine is called not exact, over all tests. Texts go on to max_tokens, so that none
    ends inside a round. UsageError at temperature 0, where nothing is drawn."""
    if params.temperature == 0:
        raise UsageError("at temperature 0 nothing is drawn, so there are no laws to test; audit greedy text with --greedy")
    scorer = Scorer(target, params)
    rounding = 0.0
    batteries: list[Battery] = []
    try:
        for number, prompt in enumerate(prompts):
            tell("texts", number, len(prompts))
            own = replace(params, seed=(params.seed or 0) + number)  # no two texts share a random number
            for seen in engine.rounds(prompt, own):
                if not batteries:
                    rounding = scorer.rounding(seen.context)
                    rules = {engine.rule.name: engine.rule, **_others(seen, engine)}
                    batteries = [Battery(rule, seed=params.seed or 0, rounding=rounding) for rule in rules.values()]
                _see(batteries, scorer, seen)
        tell("texts", len(prompts), len(prompts))
    finally:
        scorer.close()
    if not batteries:
        raise UsageError(f"{engine.name} gave no rounds; give it at least one prompt and max_tokens of 2")
    readings = [Reading(b.rule.name, b, tuple(b.findings()), level) for b in batteries]
    best = next((one for one in readings if not one.contradicted), readings[0])
    return WhiteBox(engine.name, engine.rule.name, best, rounding, level)


def _others(seen: RecordedRound, engine: RoundEngine) -> dict[str, Any]:
    """Other exact rules that may explain what the claimed one does not: sample and match."""
    return {} if engine.rule.coupled else {"match": RULES["match"]}


def _see(batteries: Sequence[Battery], scorer: Scorer, seen: RecordedRound) -> None:
    laws = scorer.laws(seen)
    for battery in batteries:
        battery.see(seen, laws)


def likely_cause(reading: Reading) -> str | None:
    """The fault whose law explains best the first stage of a round that goes wrong: drafts, acceptances, then the token after
    them, which follows from both; None when no known fault explains it."""
    battery = reading.battery
    final = _together(battery.replacements.bets, battery.target_draws.bets)
    shared = [-math.log(max(p_value(one), 1e-300)) for one in battery.reuse.findings()]
    final[alternatives.REUSED_NOISE] = max(shared, default=0.0)
    for scores in (_together(battery.drafts.bets), _together(battery.acceptance.bets), final):
        cause = max(scores, key=lambda one: scores[one], default=None)
        if cause is not None and scores[cause] >= -math.log(reading.level):
            return cause
    if battery.faults:
        return battery.faults[0][1]
    return next((_by_test(one) for one in reading.significant), None)


def _together(*bets: Bets) -> dict[str, float]:
    """Cause -> the wealth of its best bets, in nats."""
    scores: dict[str, float] = {}
    for bet in bets:
        for cause, wealth in bet.by_cause().items():
            scores[cause] = scores.get(cause, 0.0) + max(wealth, 0.0)
    return scores


def _by_test(finding: Finding) -> str | None:
    """What a test that is no bet says by itself."""
    if finding.test.startswith("drafts"):
        return alternatives.WRONG_DRAFT_LAW
    if finding.test.startswith("accepted"):
        return f"drafts are accepted too {'often' if finding.effect > 0 else 'seldom'}"
    return None
