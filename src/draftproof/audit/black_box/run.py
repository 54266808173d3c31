"""Sample an engine, score what came back, and say what it shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from draftproof.audit.black_box.copies import LocalCopy
from draftproof.audit.black_box.evidence import BY_CONTEXT, SERIAL, SHARE, SURPRISE, Evidence
from draftproof.audit.black_box.samples import Folder, Ids, Sample, TextEngine, sampled
from draftproof.audit.black_box.size import detectable_bias, tokens_needed
from draftproof.audit.black_box.two_sample import two_sample_findings
from draftproof.audit.verdict import Finding, Verdict, conclude
from draftproof.core.faults import FOREIGN, REUSED_NOISE, TEMPERATURE, WRONG_DRAFT_LAW
from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError

Tell = Callable[[str, int, int], None]
NUM_TESTS = 8
"""Tests at most: what a bet must win to end an audit before its time is reckoned with so many."""
LEAST_TOKENS = 32
"""Tokens after which a model that does not match is told from one that does."""
NAMED = 3.0
"""Nats that a bet on a fault must have won for the fault to be named."""


def silent(what: str, done: int, total: int) -> None:
    """Tell nothing."""


@dataclass(frozen=True)
class Plan:
    """num_texts: of the engine and of the control each. level: the chance, at most, that an exact
    engine is called not exact. wanted: the total variation a token that must be detectable for
    "exact". until_sure: go on for ever, with the bets alone, and stop when they are won. folder:
    where texts are kept; None keeps none."""

    num_texts: int = 64
    level: float = 1e-3
    wanted: float = 0.05
    until_sure: bool = False
    folder: Folder | None = None


@dataclass(frozen=True)
class BlackBox:
    """engine: its name. verdict: on it. num_texts, num_tokens: of it. rounding: how far the
    control's surprise is off the local copy's entropy, in nats a token, and its 95% half-width;
    None without a control or a copy. evidence: None without a copy. wealth: log of the bets' mean
    wealth after each text. notes: one sentence each."""

    engine: str
    verdict: Verdict
    num_texts: int
    num_tokens: int
    rounding: tuple[float, float] | None = None
    evidence: Evidence | None = None
    wealth: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    asked: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        named = {
            key: value
            for key, value in vars(self).items()
            if key not in ("verdict", "evidence", "asked")
        }
        return self.verdict.document() | named | {"plan": self.asked}


def audit_black_box(
    engine: TextEngine,
    prompts: Sequence[Ids],
    params: SamplingParams,
    *,
    copy: LocalCopy | None = None,
    control: TextEngine | None = None,
    plan: Plan | None = None,
    tell: Tell = silent,
) -> BlackBox:
    """copy: scores every token; without one the texts are held against those of `control`, the same
    engine without speculation. With both, the control shows what rounding makes of the copy's law.

    UsageError: neither copy nor control, no prompt, a text that the target cannot have written, a
    model that does not match."""
    plan, prompts = plan or Plan(), [tuple(prompt) for prompt in prompts]
    if not prompts:
        raise UsageError("an audit needs at least one prompt")
    if copy is None and control is None:
        raise UsageError(
            "a black box needs a local copy of the target, or the same engine without "
            "speculation as a control"
        )
    if params.temperature == 0:
        raise UsageError(
            "at temperature 0 every law is one token: a black box has nothing to test; use --greedy"
        )
    if copy is None:
        assert control is not None
        return _by_texts(engine, control, prompts, params, plan, tell)
    return _Scoring(copy, params, prompts, plan, tell).audit(engine, control)


def _by_texts(
    engine: TextEngine,
    control: TextEngine,
    prompts: Sequence[Ids],
    params: SamplingParams,
    plan: Plan,
    tell: Tell,
) -> BlackBox:
    if plan.until_sure:
        raise UsageError(
            "without a local copy of the target nothing can be told before all texts are "
            "there: give a number of texts"
        )
    theirs = list(
        sampled(
            control, prompts, params, plan.num_texts, folder=plan.folder, name="control", tell=tell
        )
    )
    ours = list(
        sampled(
            engine,
            prompts,
            _other_seeds(params, plan),
            plan.num_texts,
            folder=plan.folder,
            tell=tell,
        )
    )
    findings = two_sample_findings(ours, theirs, plan.level)
    verdict = conclude(
        findings,
        plan.level,
        detectable=None,
        wanted=plan.wanted,
        cause="another law than the control's",
    )
    note = (
        "without a local copy of the target no size of a bias can be stated, and small ones "
        "are not seen"
    )
    return BlackBox(
        engine.name, verdict, len(ours), sum(len(one.output) for one in ours), notes=(note,)
    )


def _other_seeds(params: SamplingParams, plan: Plan) -> SamplingParams:
    """Seeds that the control has not used: engines that draw alike for a seed would give the same
    texts."""
    return replace(params, seed=(params.seed or 0) + plan.num_texts)


@dataclass
class _Scoring:
    """One audit with a local copy."""

    copy: LocalCopy
    params: SamplingParams
    prompts: Sequence[Ids]
    plan: Plan
    tell: Tell

    def audit(self, engine: TextEngine, control: TextEngine | None) -> BlackBox:
        """Control first, then the engine until all its texts are there or the bets are won."""
        plan, against = self.plan, None
        if control is not None:
            against = Evidence()
            for sample in self._samples(control, "control", self.params, plan.num_texts):
                self._score(against, sample, control.name)
        evidence = Evidence(discounts={} if against is None else against.rounding())
        wealth = list[float]()
        shares = 1 if plan.until_sure else NUM_TESTS
        goal, won = math.log(shares / plan.level), False
        params = self.params if control is None else _other_seeds(self.params, plan)
        for sample in self._samples(
            engine, "samples", params, None if plan.until_sure else plan.num_texts
        ):
            self._score(evidence, sample, engine.name, is_known=control is not None)
            wealth.append(evidence.wealth.log_e)
            if evidence.wealth.highest >= goal:
                won = True
                break
        if plan.until_sure:
            findings = [evidence.bets()]
        elif won:  # when the bets decide the size, other tests have no p-value, only an effect
            others = [one for one in evidence.findings(against) if one.e_value is None]
            findings = [evidence.bets(), *(replace(one, p_value=None) for one in others)]
        else:
            findings = evidence.findings(against)
        return self._result(engine, evidence, against, findings, wealth)

    def _samples(
        self, engine: TextEngine, name: str, params: SamplingParams, number: int | None
    ) -> Any:
        check, folder = self.copy.check, self.plan.folder
        return sampled(
            engine,
            self.prompts,
            params,
            number,
            folder=folder,
            name=name,
            check=check,
            tell=self.tell,
        )

    def _score(self, evidence: Evidence, sample: Sample, name: str, is_known: bool = False) -> None:
        """is_known: that the model is the right one, since the control's texts are its."""
        evidence.begin_text()
        for mark in self.copy.marks(sample):
            evidence.see(mark)
        n = len(evidence.marks)
        if is_known or not n - len(sample.output) < LEAST_TOKENS <= n:
            return
        surprise = -np.mean([math.log(max(mark.probability, 1e-12)) for mark in evidence.marks])
        blind = math.log(self.copy.vocab_size)
        if surprise > blind:
            raise UsageError(
                f"the texts of {name} are not {self.copy.name}'s: a token costs "
                f"{surprise:.1f} nats under that model, and one drawn blindly {blind:.1f}; it "
                "runs another model, tokenizer or prompt template (name its model as the target), "
                "or it is far from exact (show that by a control, the same engine without "
                "speculation)"
            )

    def _result(
        self,
        engine: TextEngine,
        evidence: Evidence,
        control: Evidence | None,
        findings: list[Finding],
        wealth: list[float],
    ) -> BlackBox:
        plan, n = self.plan, len(evidence.marks)
        other = None if control is None else len(control.marks)
        size = detectable_bias(n, other, plan.level, len(findings))
        cause = likely_cause(evidence, findings)
        verdict = conclude(
            findings,
            plan.level,
            detectable=size,
            wanted=plan.wanted,
            more_tokens=max(0, tokens_needed(plan.wanted, other, plan.level, len(findings)) - n),
            cause=cause,
            example=example(evidence, cause),
        )
        asked = {
            "num_texts": plan.num_texts,
            "level": plan.level,
            "wanted": plan.wanted,
            "until_sure": plan.until_sure,
        }
        return BlackBox(
            engine.name,
            verdict,
            len(evidence.starts),
            n,
            None if control is None else rounding_of(control),
            evidence,
            tuple(wealth),
            tuple(_notes(evidence, control)),
            asked,
        )


def rounding_of(control: Evidence) -> tuple[float, float]:
    """How far the control's mean surprise is off its entropy, in nats, and the 95% half-width."""
    surprise = np.array([mark.surprise for mark in control.marks])
    return float(surprise[:, 0].mean()), 1.96 * float(
        np.sqrt(surprise[:, 1].mean() / len(surprise))
    )


def likely_cause(evidence: Evidence, findings: Sequence[Finding]) -> str | None:
    """The fault whose bet won most; where none won, what the strongest test looks at."""
    best = next(iter(evidence.wealth.by_cause().items()), None)
    if best is not None and best[1] >= NAMED:
        return REUSED_NOISE if best[0] == BY_CONTEXT else best[0]
    test = min(findings, key=lambda one: one.chance).test
    by_test = {SURPRISE: TEMPERATURE, SHARE: WRONG_DRAFT_LAW, SERIAL: REUSED_NOISE}
    return by_test.get(test)


def example(evidence: Evidence, cause: str | None) -> str | None:
    """The token that speaks most for the cause."""
    best: tuple[float, int] | None = None
    for index, mark in enumerate(evidence.marks):
        for named, ratio in mark.ratios:
            if named == cause and (best is None or ratio > best[0]):
                best = ratio, index
    if best is None:
        return None
    text = max(number for number, start in enumerate(evidence.starts) if start <= best[1])
    mark = evidence.marks[best[1]]
    return (
        f"text {text}, token {best[1] - evidence.starts[text]}: id {mark.token} has "
        f"probability {mark.probability:.3g} under "
        f"the target, and {best[0]:.2g} times as much under this fault"
    )


def _notes(evidence: Evidence, control: Evidence | None) -> list[str]:
    notes = []
    if control is None:
        notes.append(
            "no control: what the engine's number format and kernels make of the law "
            "counts as its fault here"
        )
    if len({mark.token for mark in evidence.marks}) == 1:
        notes.append("all tokens are the same: the engine may take the arg max whatever is asked")
    if evidence.marks and evidence.marks[0].share is None:
        notes.append("no draft is known: a guess of it (--draft) makes most faults easier to see")
    if next(iter(evidence.wealth.by_cause()), None) == FOREIGN and evidence.wealth.highest > NAMED:
        notes.append(
            "another model, prompt template or tokenizer in the engine looks like this too"
        )
    return notes
