"""All tests on recorded rounds that claim to be verified by one rule.

Drafts are held against the law they claim, acceptances against what the rule expects of the draft,
the token after them against the law the rule gives it: a replacement, a bonus, or the target's own
where nothing was drafted. Each is tested given all that came before it, so the tests need no
independence between rounds. docs/audit.md says what each of them sees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.engines.rounds import RecordedRound
from draftproof.audit.uniformity import normal_p_value, randomised_pit
from draftproof.audit.verdict import Finding
from draftproof.audit.white_box import alternatives
from draftproof.audit.white_box.explain import Explanation, explain
from draftproof.audit.white_box.reuse import Reuse
from draftproof.audit.white_box.scorer import ScoredLaws, claimed_law
from draftproof.audit.white_box.streams import Bets, DrawStream, bet_finding
from draftproof.core.bounds import gumbel_acceptance
from draftproof.core.records import ROOT
from draftproof.core.rules.protocol import Rule
from draftproof.core.wealth import FLOOR

Vector = NDArray[np.float64]


@dataclass
class Acceptance:
    """Accepted drafts less those expected, their variance, and bets on how they may be accepted
    instead."""

    floor: float
    excess: float = 0.0
    variance: float = 0.0
    expected: float = 0.0
    accepted: int = 0
    bets: Bets = field(default_factory=Bets)

    def tried(self, accepted: bool, chance: float, rounding: float) -> None:
        """One draft by itself, which is accepted with `chance`."""
        self.excess += accepted - chance
        self.expected += chance
        self.accepted += accepted
        self.variance += chance * (1.0 - chance) + rounding**2
        self.bets.see(())

    def findings(self) -> list[Finding]:
        """effect: accepted drafts a round more than expected."""
        n = self.bets.n
        if n == 0:
            return []
        z = self.excess / math.sqrt(self.variance) if self.variance > 0 else 0.0
        effect, half = self.excess / n, 1.96 * math.sqrt(self.variance) / n
        count = Finding(
            "accepted drafts", z, normal_p_value(z), None, effect, (effect - half, effect + half), n
        )
        return [count, *([bet_finding("accepted drafts", self.bets)] if self.bets.logs else [])]


class Battery:
    """rule: what the engine claims to verify by. seed: of the coins of the tests. rounding: see
    `Scorer.rounding`, in nats."""

    def __init__(self, rule: Rule, *, seed: int = 0, rounding: float = 0.0) -> None:
        self.rule, self.rounding = rule, rounding
        floor = max(FLOOR, 0.1 * rounding)  # rounding moves what a truncation keeps, too
        self._coins = np.random.default_rng(seed)
        self.drafts = DrawStream("drafts against their law", FLOOR)
        self.acceptance = Acceptance(floor)
        self.replacements = DrawStream("replacements against the residual", floor)
        self.target_draws = DrawStream("bonus and undrafted tokens against the target", floor)
        self.reuse = Reuse()
        self.num_rounds = self.num_tokens = self.num_missing_bonus = self.num_bonus_due = 0
        self.faults: list[tuple[RecordedRound, str]] = []
        self.example: str | None = None
        self._least_likely = 0.0
        self._furthest = 0

    def see(self, seen: RecordedRound, laws: ScoredLaws) -> None:
        """One round. laws: the target's, computed anew."""
        self.num_rounds += 1
        self.num_tokens += len(seen.tokens)
        self._see_drafts(seen, laws)
        if self.rule.coupled:
            self._see_coupled(seen, laws)
            return
        explained = explain(self.rule, seen.draft, laws, seen.path)
        if seen.fault is not None:
            self.faults.append((seen, seen.fault))
            return
        if seen.draft.tokens and not seen.cut:
            self._see_acceptance(seen, laws, explained)
        if seen.final_token is not None and explained.final_law is not None:
            self._see_final(seen, laws, explained.final_law, seen.final_token)
            self._keep_example(seen, explained.final_law, seen.final_token)
        if seen.final_origin == "bonus" and not seen.cut:
            self.num_bonus_due += 1
            self.num_missing_bonus += seen.final_token is None

    def _keep_example(self, seen: RecordedRound, law: Vector, token: int) -> None:
        """Remember the token that was the least likely of all, against what would have been."""
        surprise = -math.log(max(float(law[token]), 1e-300)) - float(
            -(law[law > 0] * np.log(law[law > 0])).sum()
        )
        if surprise > self._least_likely:
            self._least_likely = surprise
            drafts = f"the drafts {list(seen.draft.tokens)}, {seen.num_accepted} of them accepted"
            self.example = (
                f"after the tokens {list(seen.context[-8:])} and {drafts}, token {token} "
                f"came as {seen.final_origin}; "
                f"an exact engine gives it {float(law[token]):.2g}"
            )

    def findings(self) -> list[Finding]:
        """All of them."""
        streams = (self.drafts, self.acceptance, self.replacements, self.target_draws, self.reuse)
        return [finding for stream in streams for finding in stream.findings()]

    def _see_drafts(self, seen: RecordedRound, laws: ScoredLaws) -> None:
        draft = seen.draft
        if draft.selection == "fixed":
            return
        numbers: dict[int, float] = {}
        if len(seen.context) == len(seen.prompt):
            self._furthest = 0
        for node, token in enumerate(draft.tokens):
            parent = draft.parents[node]
            if self.rule.coupled and not self._is_new(
                len(seen.context) + len(draft.nodes_to(node))
            ):
                continue
            if draft.selection == "top_k_plus_one" and node != draft.children[parent][-1]:
                continue  # a constant
            target = laws.vector(parent)
            law = claimed_law(draft, node, target)
            before = draft.laws.get(draft.parents[parent]) if parent != ROOT else None
            coin = self._coins.random()
            numbers[node] = randomised_pit(law, token, coin)
            above = None if before is None else np.asarray(before, dtype=np.float64)
            uniforms = {
                "by likelihood": randomised_pit(law, token, coin, law),
                "by draft over target": randomised_pit(law, token, coin, _ratio(law, target)),
            }
            self.drafts.see(law, token, alternatives.of_draft(law, target, above), uniforms)
        self.reuse.drafted(numbers)

    def _is_new(self, position: int) -> bool:
        """Whether no draft was drawn for `position` before: coupled drafts of one position share
        their noise."""
        new = position > self._furthest
        self._furthest = max(self._furthest, position)
        return new

    def _see_acceptance(
        self, seen: RecordedRound, laws: ScoredLaws, explained: Explanation
    ) -> None:
        found, n = self.acceptance, seen.num_accepted
        found.excess += n - explained.mean
        found.expected += explained.mean
        found.accepted += n
        found.variance += explained.variance + (self.rounding * len(seen.draft)) ** 2
        chances = explained.lengths
        null = (1.0 - found.floor) * chances.get(n, 0.0) + found.floor / (len(seen.draft) + 1)
        found.bets.see(self._length_ratios(seen, laws, null), rounding=self.rounding)
        if seen.draft.is_chain:
            for node in range(min(n + 1, len(seen.draft))):
                reached = sum(chance for length, chance in chances.items() if length >= node)
                passed = sum(chance for length, chance in chances.items() if length > node)
                if reached > 0:
                    self.reuse.accepted(node, n > node, passed / reached)

    def _length_ratios(self, seen: RecordedRound, laws: ScoredLaws, null: float) -> Any:
        """Of each fault of acceptance on a chain, the likelihood ratio of the number accepted."""
        draft, n = seen.draft, seen.num_accepted
        if not draft.is_chain:
            return
        targets = [laws.vector(node) for node in (ROOT, *range(len(draft)))]
        drafts = (
            None
            if draft.selection == "fixed"
            else [claimed_law(draft, i, targets[i]) for i in range(len(draft))]
        )
        stale = [laws.stale(node) for node in (ROOT, *range(len(draft)))]
        for cause, chances in alternatives.acceptances(draft.tokens, targets, drafts, stale):
            likelihood = math.prod(chances[:n]) * (1.0 - chances[n] if n < len(chances) else 1.0)
            yield cause, likelihood / null

    def _see_coupled(self, seen: RecordedRound, laws: ScoredLaws) -> None:
        """Draft and target draw with shared noise: given the draft little is known of the target's
        draw, but every emitted token has the target's law given those before it, and a chain's
        draft agrees with it as often as the coupling says."""
        way = (ROOT, *seen.path)
        for node, token in zip(way, seen.tokens, strict=False):
            law = laws.vector(node)
            coin = self._coins.random()
            before = laws.vector(seen.draft.parents[node]) if node != ROOT else None
            others = alternatives.of_target_draw(law, before, laws.stale(node))
            self.target_draws.see(
                law,
                token,
                others,
                {"by likelihood": randomised_pit(law, token, coin, law)},
                self.rounding,
            )
            self._keep_example(seen, law, token)
            child = seen.draft.children.get(node, [None])[0]
            if child is not None and seen.draft.is_chain and not seen.cut:
                self.acceptance.tried(
                    child in seen.path, self._coupled_chance(seen, child, law), self.rounding
                )

    def _coupled_chance(self, seen: RecordedRound, child: int, law: Vector) -> float:
        if seen.draft.selection == "fixed":
            return float(law[seen.draft.tokens[child]])
        return gumbel_acceptance(law, claimed_law(seen.draft, child, law))

    def _see_final(self, seen: RecordedRound, laws: ScoredLaws, law: Vector, token: int) -> None:
        draft, node = seen.draft, seen.last
        target = laws.vector(node)
        coin = self._coins.random()
        if seen.final_origin != "replacement":
            before = laws.vector(draft.parents[node]) if node != ROOT else None
            others = alternatives.of_target_draw(target, before, laws.stale(node))
            self.target_draws.see(
                law,
                token,
                others,
                {"by likelihood": randomised_pit(law, token, coin, law)},
                self.rounding,
            )
            if node != ROOT:
                self.reuse.drawn(node, randomised_pit(law, token, coin))
            return
        child = draft.children[node][0]
        drawn_from = None if draft.selection == "fixed" else claimed_law(draft, child, target)
        later = list(draft.tokens[child + 1 :]) if draft.is_chain else []
        following = laws.vector(child) if child not in draft.ends else None
        others = alternatives.of_replacement(
            law, target, drawn_from, draft.tokens[child], following, laws.stale(node), later
        )
        widened = _widened(law, target, drawn_from, self.rounding)
        uniforms = {"by likelihood": randomised_pit(widened, token, coin, widened)}
        if drawn_from is not None:
            uniforms["by draft over target"] = randomised_pit(
                widened, token, coin, _ratio(drawn_from, target)
            )
        self.replacements.see(widened, token, others, uniforms, self.rounding)
        self.reuse.drawn(child, randomised_pit(widened, token, coin))


def _ratio(drawn_from: Vector, target: Vector) -> Vector:
    return drawn_from / np.maximum(target, 1e-300)


def _widened(law: Vector, target: Vector, drawn_from: Vector | None, rounding: float) -> Vector:
    """The law of a replacement with the mass that rounding of the target's law may put elsewhere: a
    residual is a difference, so what is small against the law may be large against the rest of
    it."""
    if rounding == 0.0:
        return law
    rest = 1.0 if drawn_from is None else float(np.maximum(target - drawn_from, 0.0).sum())
    share = rounding / (rounding + rest)
    return (1.0 - share) * law + share * target
