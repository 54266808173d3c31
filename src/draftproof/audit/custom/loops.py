"""A rule or a drafter of anybody's in draftproof's own decode loop, enumerated.

A rule meets every kind of draft it declares: chains through the whole loop, trees for one round,
which by induction stands for all. A drafter meets every rule that verifies what it declares,
through the whole loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from draftproof.audit.custom.branching import ELSEWHERE, Branch
from draftproof.audit.custom.wrong import FirstWrong, Text, first_wrong
from draftproof.audit.drafting import Kind
from draftproof.audit.exact import (
    PROMPT,
    Case,
    Harness,
    Walk,
    begun,
    ends_of,
    harness,
    laws_of,
    target_law,
    total_variation,
)
from draftproof.audit.remembered import RememberedLaws
from draftproof.audit.table import LENGTHS, PAIRS, PARAMETERS, TREE_PAIRS, tree_case
from draftproof.audit.toys import pairs
from draftproof.core.chance import Purpose
from draftproof.core.enumerate import Choice, Known
from draftproof.core.rules import LOSSLESS
from draftproof.core.rules.protocol import Rule
from draftproof.core.tree import MAX_NODES
from draftproof.decode.generation import Generation
from draftproof.drafters.protocol import Drafter
from draftproof.errors import DraftproofError, KeyRepeatedError, UsageError

State = tuple[Generation, Known]
TREES_SHOWN = ("[2]", "[2,1]", "[3]+1")
"""Shapes a rule for trees is shown."""


@dataclass(frozen=True)
class Found:
    """Of one cell. tokens_per_round: of the first round. key_repeated: two draws of one path asked
    for one key of chance."""

    case: Case
    tv: float
    tokens_per_round: float
    wrong: FirstWrong | None
    key_repeated: bool = False


class LoopWalk(Walk):
    """A walk that knows no formula for the length of a round, and keeps the mean of the first."""

    tokens_per_round = 0.0

    def _check_length(self, generation: Generation, length: float, total: float) -> None:
        if abs(total - 1.0) > 1e-9:
            raise UsageError(ELSEWHERE)
        if len(generation.context) == len(PROMPT):
            self.tokens_per_round = length

    def expand(self, state: State) -> Iterator[tuple[float, State, tuple[Branch, ...]]]:
        """Every outcome of the next round of a state."""
        for probability, after, known, choices in self.rounds(*state):
            yield probability, (after, known), tuple(_in_words(choice) for choice in choices)


def cells_of_rule(rule: Rule) -> list[tuple[Case, Harness]]:
    """A rule's cells."""
    name = rule.name
    chains = [
        draft
        for selection, draft in (("iid", "sampled"), ("fixed", "greedy"))
        if selection in rule.selections
    ]
    plain = PARAMETERS["plain"]
    cases = [
        Case(name, draft, pair, "plain", plain, k)
        for draft in chains
        for pair in PAIRS
        for k in LENGTHS
    ]
    if rule.trees:
        kinds = [(name, selection) for selection in sorted(rule.selections)]
        cases += [
            tree_case(kind, "plain", shape, pair)
            for kind in kinds
            for shape in TREES_SHOWN
            for pair in _toys(shape)
        ]
    return [(case, harness(case, rule=rule)) for case in cases]


def _toys(shape: str) -> tuple[str, ...]:
    return ("wide",) if shape == "[3]+1" else TREE_PAIRS


def cells_of_drafter(drafter: Drafter) -> list[tuple[Case, Harness]]:
    """A drafter's cells."""
    rules = [
        rule
        for rule in LOSSLESS.values()
        if drafter.selections <= rule.selections and rule.trees >= drafter.trees
    ]
    if not rules:
        raise UsageError(
            f"no rule verifies {', '.join(sorted(drafter.selections))} drafts together; "
            "see docs/rules.md"
        )
    cells = []
    for rule in rules:
        for pair in PAIRS if rule is rules[0] else PAIRS[:1]:
            for k in LENGTHS[:2]:
                case = Case(
                    rule.name, drafter.name, pair, "plain", PARAMETERS["plain"], k, horizon=3
                )
                cells.append((case, _harness_of_drafter(case, drafter)))
    return cells


def _harness_of_drafter(case: Case, drafter: Drafter) -> Harness:
    model = pairs()[case.pair].target
    laws, drafts = (RememberedLaws(case.sampling, **laws_of(model)) for _ in range(2))
    kind = Kind(drafter.name, drafter, lambda context, path: None)
    most = MAX_NODES if drafter.trees else None
    generation = begun(case, model, kind, laws, drafts, max_nodes=most)
    return Harness(model, kind, laws, generation, case.rule, ends_of(case, model), case.horizon)


def examine(case: Case, made: Harness) -> Found:
    """The law of one cell, and where it first goes wrong. Whatever the subject raises becomes a
    UsageError."""
    try:
        return _examined(case, made)
    except KeyRepeatedError:
        return replace(_examined(case, replace(made, share=True)), key_repeated=True)
    except DraftproofError:
        raise
    except Exception as error:
        raise UsageError(
            f"it raised {type(error).__name__} on {case.draft!r} drafts of models "
            f"{case.pair!r}: {error}"
        ) from error


def _examined(case: Case, made: Harness) -> Found:
    walk = LoopWalk(made)
    law, reference = walk.law(), target_law(made)
    start: State = (made.generation, {})
    wrong = first_wrong(law, reference, start, walk.expand, _emitted)
    return Found(case, total_variation(law, reference), walk.tokens_per_round, wrong)


def _emitted(state: State) -> Text:
    return tuple(state[0].context[len(PROMPT) :])


def _in_words(choice: Choice) -> Branch:
    if choice.purpose is Purpose.ACCEPT:
        said = f"draft {choice.node} is {'accepted' if choice.outcome == 0 else 'rejected'}"
    else:
        what = {
            Purpose.DRAFT: "draft",
            Purpose.REPLACEMENT: "replacement or bonus",
            Purpose.TARGET: "the target's own draw",
        }
        said = (
            f"{what.get(choice.purpose, choice.purpose.name.lower())} {choice.node}: token "
            f"{choice.outcome}"
        )
    return Branch(said, choice.probability)
