"""Length controllers to prove the decode loop under, and what a round of theirs is expected to
emit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftproof.audit.drafting import Kind, Plan
from draftproof.audit.exact import Case, Harness, harness
from draftproof.audit.formulas import expected_tokens_of_round
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.generation import Generation
from draftproof.decode.length import LengthController, Member, Situation
from draftproof.decode.lengths import LENGTHS
from draftproof.decode.lengths.auto_off import Ledger

STEPPING = RoundCosts(verify=((1, 1.0), (4, 1.25)), draft=0.2, read=0.01, prompt=0.02)
"""Costs of toy models: near the thresholds, so that what happened in a round changes the next one's
length."""
LOOKING_UP = RoundCosts(verify=((1, 1.0), (4, 1.6)), fixed=0.02)


def _made(name: str, kind: Kind, share: float | None) -> LengthController:
    made = []
    for member, drafter in kind.drafter.members.items():
        costs = LOOKING_UP if drafter.model is None else STEPPING
        made.append(Member(member, LENGTHS[name].make(costs), costs, auto_off=share is not None))
    return LengthController(made, None if share is None else Ledger(share))


CONTROLLERS: dict[str, Callable[[Kind], LengthController]] = {
    "fixed": lambda kind: _made("fixed", kind, None),
    "heuristic": lambda kind: _made("heuristic", kind, None),
    "lab": lambda kind: _made("lab", kind, None),
    "survival": lambda kind: _made("survival", kind, None),
    "fixed, auto off": lambda kind: _made("fixed", kind, 0.004),
    "heuristic, auto off": lambda kind: _made("heuristic", kind, 0.004),
    "lab, auto off": lambda kind: _made("lab", kind, 0.004),
    "survival, auto off": lambda kind: _made("survival", kind, 0.004),
}
"""Every rule that replays, free and under a budget that one or two lost rounds exhaust."""


def bounded(kind: Kind, generation: Generation, longest: int) -> tuple[Plan, int]:
    """What `kind` would draft in the coming round as far as the length controller lets it, and the
    depth allowed at most."""
    begun = copy.deepcopy(generation.length)
    assert begun is not None
    assert generation.drafting is not None
    depth = begun.begin(
        Situation(
            length=len(generation.context),
            longest=max(longest, 0),
            remaining=generation.stopper.remaining,
            foreseen=begun.foreseen(generation.drafting, generation.context),
        )
    )
    chosen = kind.members[begun.choice] if kind.members and begun.choice else kind

    def plan(context: tuple[int, ...], path: tuple[int, ...]) -> Any:
        lengths = copy.deepcopy(begun)
        for level in range(len(path) + 1):
            choice = None if lengths.room(level) <= 0 else chosen.plan(context, path[:level])
            if choice is None:
                return None
            if chosen.shows is not None and not lengths.go_on(
                chosen.shows(context, path[:level]), level
            ):
                return None
        return choice

    return plan, min(depth, longest)


@dataclass
class LengthHarness(Harness):
    """A harness whose drafts are as long as a controller says."""

    def expected_tokens(self, generation: Generation, depth: int) -> float:
        plan, allowed = bounded(self.kind, generation, depth)
        context = tuple(generation.context)
        return expected_tokens_of_round(
            self.rule_name, self.target_row, plan, context, allowed, self.ends
        )


def length_harness(case: Case) -> Harness:
    """The generation of `case` with its length controller."""
    assert case.length is not None
    made = harness(case)
    made.generation.length = CONTROLLERS[case.length](made.kind)
    return LengthHarness(**vars(made))
