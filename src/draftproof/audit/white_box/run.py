"""Record an engine's rounds, test them, and say what they show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from draftproof.audit.engines.rounds import RecordedRound, RoundEngine
from draftproof.audit.verdict import Finding, Verdict, conclude
from draftproof.audit.white_box.battery import Battery
from draftproof.audit.white_box.scorer import Scorer
from draftproof.audit.white_box.streams import Bets
from draftproof.core.faults import REUSED_NOISE, WRONG_DRAFT_LAW
from draftproof.core.params import SamplingParams
from draftproof.core.rules import RULES
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel

Tell = Callable[[str, int, int], None]
MISSED = 0.05
"""The chance of missing a bias of the size that is called detectable."""
WANTED = 0.25
"""What could not even show a bias of this total variation a token is no verdict."""


@dataclass(frozen=True)
class Reading:
    """Rounds as one rule explains them: its tests, and what they say together. verdict: of all
    tests at their level."""

    rule: str
    battery: Battery
    verdict: Verdict

    @property
    def contradicted(self) -> bool:
        return self.verdict.outcome == "not exact"


@dataclass(frozen=True)
class WhiteBox:
    """What the rounds of an engine show. claimed: the rule the engine claims; reading: as the rule
    that explains them best."""

    engine: str
    claimed: str
    reading: Reading
    rounding: float

    @property
    def verdict(self) -> Verdict:
        return self.reading.verdict

    @property
    def notes(self) -> list[str]:
        """What is no fault, but worth knowing."""
        battery, notes = self.reading.battery, list[str]()
        if self.reading.contradicted:
            return notes
        if battery.num_missing_bonus:
            missing = (
                f"{battery.num_missing_bonus} of {battery.num_bonus_due} rounds whose drafts "
                "were all accepted"
            )
            notes.append(f"{missing} gave no bonus token: exact, but slower than it need be")
        if self.reading.rule != self.claimed:
            found = (
                f"rule {self.reading.rule!r} explains the rounds, not {self.claimed!r} as claimed"
            )
            notes.append(f"{found}: exact, with another acceptance")
        return notes

    def document(self) -> dict[str, Any]:
        """Ready for JSON, with the keys of docs/json_documents.md."""
        battery = self.reading.battery
        return {
            **self.verdict.document(),
            "engine": self.engine,
            "claimed_rule": self.claimed,
            "rule": self.reading.rule,
            "rounds": battery.num_rounds,
            "tokens": battery.num_tokens,
            "accepted": battery.acceptance.accepted,
            "accepted_expected": battery.acceptance.expected,
            "rounding": self.rounding,
            "notes": self.notes,
        }


def detectable(n: int, level: float) -> float:
    """The distance that a Kolmogorov test of n numbers at `level` sees with probability 0.95 at
    least: by the inequality of Dvoretzky, Kiefer and Wolfowitz, which is on the safe side."""
    return math.sqrt(math.log(2.0 / level) / (2.0 * n)) + math.sqrt(
        math.log(2.0 / MISSED) / (2.0 * n)
    )


def needed(distance: float, level: float) -> int:
    """How many numbers make `distance` detectable."""
    return math.ceil(
        ((math.sqrt(math.log(2.0 / level)) + math.sqrt(math.log(2.0 / MISSED))) / distance) ** 2
        / 2.0
    )


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

    level: the chance, at most, that an exact engine is called not exact, over all tests. Texts go
    on to max_tokens, so that none ends inside a round. UsageError at temperature 0, where nothing
    is drawn."""
    if params.temperature == 0:
        raise UsageError(
            "at temperature 0 nothing is drawn, so there are no laws to test; audit "
            "greedy text with --greedy"
        )
    scorer = Scorer(target, params)
    rounding = 0.0
    batteries: list[Battery] = []
    try:
        for number, prompt in enumerate(prompts):
            tell("texts", number, len(prompts))
            # no two texts share a random number
            own = replace(params, seed=(params.seed or 0) + number)
            rounds = list(engine.rounds(prompt, own))
            if rounds and not batteries:
                rounding = scorer.rounding((*rounds[-1].context, *rounds[-1].tokens))
                rules = {engine.rule.name: engine.rule, **_others(rounds, engine)}
                batteries = [
                    Battery(rule, seed=params.seed or 0, rounding=rounding)
                    for rule in rules.values()
                ]
            for seen in rounds:
                _see(batteries, scorer, seen)
        tell("texts", len(prompts), len(prompts))
    finally:
        scorer.close()
    if not batteries:
        raise UsageError(
            f"{engine.name} gave no rounds; give it at least one prompt and max_tokens of 2"
        )
    readings = [reading_of(battery, level) for battery in batteries]
    best = next((one for one in readings if not one.contradicted), readings[0])
    return WhiteBox(engine.name, engine.rule.name, best, rounding)


def reading_of(battery: Battery, level: float) -> Reading:
    """What the tests of one battery say together."""
    findings = battery.findings()
    share = level / max(len(findings), 1)
    drawn = battery.replacements.bets.n + battery.target_draws.bets.n
    size = None if drawn == 0 else min(detectable(drawn, share), 1.0)
    more = max(0, round((needed(WANTED, share) - drawn) * battery.num_tokens / max(drawn, 1)))
    verdict = conclude(findings, level, detectable=size, wanted=WANTED, more_tokens=more)
    if battery.faults:
        seen, fault = battery.faults[0]
        said = f"{fault}, after {list(seen.context[-8:])}"
        verdict = replace(verdict, outcome="not exact", cause=fault, example=said, more_tokens=None)
    elif verdict.outcome == "not exact":
        verdict = replace(verdict, cause=likely_cause(battery, verdict), example=battery.example)
    return Reading(battery.rule.name, battery, verdict)


def _others(rounds: Sequence[RecordedRound], engine: RoundEngine) -> dict[str, Any]:
    """Other exact rules that may explain what the claimed one does not: sample and match, and on
    drawn chains `token`."""
    if engine.rule.coupled:
        return {}
    drawn_chain = all(seen.draft.is_chain for seen in rounds) and any(
        seen.draft.selection == "iid" for seen in rounds
    )
    return {
        name: RULES[name]
        for name in ("match", *(["token"] if drawn_chain else []))
        if name != engine.rule.name
    }


def _see(batteries: Sequence[Battery], scorer: Scorer, seen: RecordedRound) -> None:
    laws = scorer.laws(seen)
    for battery in batteries:
        battery.see(seen, laws)


def likely_cause(battery: Battery, verdict: Verdict) -> str | None:
    """The fault whose law explains best the first stage of a round that goes wrong: drafts,
    acceptances, then the token after them, which follows from both; None when no known fault
    explains it."""
    final = _together(battery.replacements.bets, battery.target_draws.bets)
    shared = [-math.log(max(one.chance, 1e-300)) for one in battery.reuse.findings()]
    final[REUSED_NOISE] = max(shared, default=0.0)
    for scores in (_together(battery.drafts.bets), _together(battery.acceptance.bets), final):
        cause = max(scores, key=lambda one: scores[one], default=None)
        if cause is not None and scores[cause] >= -math.log(verdict.level):
            return cause
    return next((_by_test(one) for one in verdict.significant), None)


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
        return WRONG_DRAFT_LAW
    if finding.test.startswith("accepted"):
        return f"drafts are accepted too {'often' if finding.effect > 0 else 'seldom'}"
    return None
