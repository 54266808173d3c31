"""Length controllers to prove the decode loop under, and what a round of theirs is expected to emit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from draftproof.audit.drafting import Kind, Plan
from draftproof.audit.exact import PROMPT, Case, Harness, Law, Proof, Walk, harness, target_law, total_variation
from draftproof.core.chance import Purpose
from draftproof.core.enumerate import EnumeratingChance, Known, outcomes
from draftproof.core.round_costs import RoundCosts
from draftproof.decode.drive import drive
from draftproof.decode.generation import Generation
from draftproof.decode.length import LengthController, Member, Situation
from draftproof.decode.lengths import LENGTHS
from draftproof.decode.lengths.auto_off import Ledger
from draftproof.decode.measured_costs import members

STEPPING = RoundCosts(verify=((1, 1.0), (4, 1.25)), draft=0.2, read=0.01, prompt=0.02)
"""Costs of toy models: near the thresholds, so that what happened in a round changes the next one's length."""
LOOKING_UP = RoundCosts(verify=((1, 1.0), (4, 1.6)), fixed=0.02)


def _made(name: str, kind: Kind, share: float | None) -> LengthController:
    made = []
    for member, drafter in members(kind.drafter).items():
        costs = STEPPING if hasattr(drafter, "model") else LOOKING_UP
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
    """What `kind` would draft in the coming round as far as the length controller lets it, and the depth allowed at most."""
    begun = copy.deepcopy(generation.length)
    assert begun is not None
    assert generation.drafting is not None
    depth = begun.begin(
        Situation(
            length=len(generation.context),
            unread=len(generation.context) - generation.session.length,
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
            if chosen.shows is not None and not lengths.go_on(chosen.shows(context, path[:level]), level):
                return None
        return choice

    return plan, min(depth, longest)


def prove_length(case: Case, name: str) -> Proof:
    """Enumerate one case under the controller called `name` and compare it with the target and the formula."""
    walk = LengthWalk(length_harness(case, name))
    law = walk.law()
    return Proof(case, total_variation(law, target_law(walk.made)), walk.length_error, len(walk.seen))


def length_harness(case: Case, name: str) -> Harness:
    """The generation of `case` with a length controller."""
    made = harness(case)
    made.generation.length = CONTROLLERS[name](made.kind)
    return made


class LengthWalk(Walk):
    """Walks generations whose controller is part of their state."""

    def _after(self, generation: Generation, known: Known, done: int) -> Law:
        emitted = tuple(generation.context[len(PROMPT) :])
        if len(emitted) >= self.made.horizon or generation.finished:
            return {emitted[: self.made.horizon]: 1.0}
        states = tuple(part.state_key() for part in (generation.drafting, generation.length) if part is not None)
        key = (emitted, states, tuple(sorted(known.items())))
        if key not in self.seen:
            self.seen[key] = self._expand(generation, known, done)
        return self.seen[key]

    def _rounds(self, generation: Generation, known: Known) -> Iterator[tuple[float, Generation, Known]]:
        def run(chance: EnumeratingChance) -> Generation:
            after = _cloned(generation)
            after.chance_at = lambda start: chance
            drive(after.round())
            return after

        for outcome, after in outcomes(run, len(generation.context), known):
            length = len(after.context)
            yield (
                outcome.probability,
                after,
                {k: v for k, v in outcome.known.items() if k[0] == Purpose.TARGET and k[1] >= length},
            )

    def _check_length(self, generation: Generation, length: float, total: float) -> None:
        made = self.made
        plan, depth = bounded(made.kind, generation, min(generation.num_speculative_tokens, generation.stopper.remaining - 1))
        expected = replace(made, kind=replace(made.kind, plan=plan)).expected_tokens(tuple(generation.context), depth)
        self.length_error = max(self.length_error, abs(length - expected), abs(total - 1.0))


def _cloned(generation: Generation) -> Generation:
    after = replace(generation, context=list(generation.context), stopper=copy.copy(generation.stopper))
    after.session = copy.copy(generation.session)
    after.drafting = _cloned_drafting(generation.drafting)
    after.length = copy.deepcopy(generation.length)
    return after


def _cloned_drafting(drafting: Any) -> Any:
    """A drafter's state with sessions, tables and the states of its members its own."""
    after = copy.copy(drafting)
    for name, value in vars(after).items():
        if hasattr(value, "rollback"):
            setattr(after, name, copy.copy(value))
        elif isinstance(value, dict) and value and all(hasattr(one, "propose") for one in value.values()):
            setattr(after, name, {key: _cloned_drafting(one) for key, one in value.items()})
        elif isinstance(value, (dict, list, set)):
            setattr(after, name, copy.deepcopy(value))
    return after
