"""What every rule accepts at one position of the toys, beside the most that any rule could make of
the same drafts.

The rule is enumerated as in the proof: every draft that can come, every way through its coins. The
ceiling is the optimum over all couplings of Y ~ target with the drafts, by max-flow min-cut: 1 +
min over sets H of [target(H) - P(all drafts in H)] (SpecTr 2310.15141), with H running through all
subsets of the toys' tokens, for any way siblings can come about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.drafting import likeliest
from draftproof.audit.exact import PROMPT
from draftproof.audit.table import TREE_PAIRS
from draftproof.audit.toys import VOCAB, pairs
from draftproof.core.bounds import gumbel_acceptance
from draftproof.core.enumerate import EnumeratingChance, outcomes
from draftproof.core.records import Array, Draft, Selection
from draftproof.core.rules import LOSSLESS
from draftproof.core.rules.protocol import Rule
from draftproof.drafters.builder import DraftBuilder

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Achieved:
    """Means over the toys: the chance that one of `num_drafts` drafts at a position is the emitted
    token, and its ceiling."""

    rule: str
    selection: Selection
    num_drafts: int
    accepted: float
    ceiling: float


def achieved(rules: Sequence[str] = tuple(LOSSLESS)) -> list[Achieved]:
    """One row for every rule and kind of siblings it verifies: two drafts for rules of trees, one
    for those of chains and for `gumbel`, whose drafts share the target's noise (its closed form
    stands for the enumeration, which has none to share)."""
    found = []
    for name in rules:
        rule = LOSSLESS[name]
        count = 2 if rule.trees and not rule.coupled else 1
        kinds: Sequence[Selection] = ("iid",) if rule.coupled else sorted(rule.selections)
        for selection in kinds:
            if count == 1 and selection == "without_replacement":
                continue  # one draft without replacement is one drawn at all
            cells = [_cell(rule, selection, count, *_laws(name)) for name in TREE_PAIRS]
            accepted, most = (float(np.mean(column)) for column in zip(*cells, strict=True))
            found.append(Achieved(name, selection, count, accepted, most))
    return found


def ceiling(target_law: Vector, sets: Sequence[tuple[tuple[int, ...], float]]) -> float:
    """The most often that Y ~ `target_law` [vocab] can be among the drafts; `sets`: what may be
    drafted, with probabilities."""
    tokens = range(len(target_law))
    subsets = chain.from_iterable(combinations(tokens, size) for size in range(len(target_law) + 1))
    cuts = (
        sum(target_law[list(inside)])
        - sum(mass for drafts, mass in sets if set(drafts) <= set(inside))
        for inside in subsets
    )
    return float(1.0 + min(cuts))


def _laws(pair: str) -> tuple[Vector, Vector]:
    toy = pairs()[pair]
    return toy.target.law(PROMPT), toy.draft.law(PROMPT)


def _cell(
    rule: Rule, selection: Selection, count: int, target: Vector, law: Vector
) -> tuple[float, float]:
    """(accepted, ceiling) at one position."""
    accepted, sets = 0.0, []

    def draft(chance: EnumeratingChance) -> Draft:
        builder = DraftBuilder(chance, depth=1, vocab_size=VOCAB, max_nodes=count)
        if selection == "fixed":
            for token in likeliest(law, count):
                builder.guess(token, -1)
        else:
            builder.draw_children(law, count, selection, -1)
        return builder.build()

    for drawn, made in outcomes(draft, len(PROMPT)):
        sets.append((made.tokens, drawn.probability))
        ways = outcomes(partial(rule.verify, made, _Row(target)), len(PROMPT), drawn.known)
        accepted += drawn.probability * sum(
            way.probability * len(verdict.path) for way, verdict in ways
        )
    return gumbel_acceptance(target, law) if rule.coupled else accepted, ceiling(target, sets)


class _Row:
    """One target law after every node."""

    def __init__(self, law: Vector) -> None:
        self._law = law

    def row(self, node: int) -> Array:
        return self._law

    def rows(self, nodes: Sequence[int]) -> Array:
        return np.stack([self._law for _ in nodes])

    def draw(self, node: int, chance: Any) -> Any:
        return chance.draw_target(self._law, node + 1)
