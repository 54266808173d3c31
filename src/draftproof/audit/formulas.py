"""What a round of each rule is expected to emit, one entry a rule: law and length together are what the proof compares.

A missing bonus token leaves the law exact and shows only in the length. So a rule is proven with its formula or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from draftproof.audit.expected import (
    LawOf,
    Vector,
    Weight,
    by_block,
    by_match,
    by_token,
    every_path,
    expected_on_chain,
)
from draftproof.audit.expected_trees import (
    Siblings,
    Tokens,
    by_every_tree,
    constants_and_one,
    fixed,
    from_the_top,
    k_seq,
    match_iid,
    match_in_turn,
    rrs_iid,
    rrs_in_turn,
)
from draftproof.audit.kinds import GuessedKind, Plan, TreeKind
from draftproof.core.records import Selection
from draftproof.errors import UsageError

Guesses = Callable[[Sequence[tuple[int, ...]], LawOf, tuple[int, ...], frozenset[int]], float]


@dataclass(frozen=True)
class Formula:
    """A rule's expected tokens of a round.

    chain: the probability that a token of a chain is kept. siblings: for rules that take trees and walk down them, which child
    of a node is accepted, by selection. tree: for those that take trees otherwise, the expected tokens themselves. guesses:
    over fixed guesses given as paths. tolerance: how far a round may be off by rounding."""

    chain: Weight
    siblings: dict[Selection, Siblings] | None = None
    tree: Tokens | None = None
    guesses: Guesses = every_path
    tolerance: float = 1e-12


def _matched(p: Vector, rest: Vector) -> Vector:
    return p * rest


MATCHED: dict[Selection, Siblings] = {
    "fixed": fixed,
    "iid": match_iid,
    "without_replacement": match_in_turn,
    "top_k_plus_one": constants_and_one(_matched),
}

RHO = 1e-7
"""Where two laws are all but one, any rho from 1 to about 1 + 1e-8 fits to the last bit of beta (the slack of the condition is
of second order): the law stays exact to rounding, but which sibling `k_seq` takes, and with it the length of a lopsided tree's
round, moves by as much."""

FORMULAS: dict[str, Formula] = {
    "match": Formula(by_match, MATCHED),
    "gumbel": Formula(by_match, MATCHED),  # the enumerator draws without shared noise
    "token": Formula(by_token),
    "block": Formula(by_block),
    "rrs": Formula(by_token, {"fixed": fixed, "iid": rrs_iid, "without_replacement": rrs_in_turn}),
    "greedy_k": Formula(by_token, {"fixed": fixed, "top_k_plus_one": constants_and_one(np.minimum)}),
    "k_seq": Formula(by_token, {"fixed": fixed, "iid": k_seq}, tolerance=RHO),
    "traversal": Formula(by_block, tree=by_every_tree),
}
"""By the name of the rule."""


def formula_of(rule: str) -> Formula:
    """The rule's entry; UsageError says where to add one."""
    if rule not in FORMULAS:
        raise UsageError(
            f"rule {rule!r} has no expected length to be proven with: add an entry to FORMULAS in "
            "src/draftproof/audit/formulas.py (docs/add_a_rule.md)"
        )
    return FORMULAS[rule]


def tree_formula(rule: str, selection: Selection) -> Tokens:
    """Of a rule over trees of a selection; UsageError says what to add."""
    formula = formula_of(rule)
    if formula.tree is not None:
        return formula.tree
    if formula.siblings is None or selection not in formula.siblings:
        raise UsageError(
            f"rule {rule!r} has no expected length for {selection} siblings: add it to its entry of FORMULAS in "
            "src/draftproof/audit/formulas.py (docs/add_a_rule.md)"
        )
    return from_the_top(formula.siblings)


def accepted_children(rule: str, selection: Selection, p: Vector, q: Vector, k: int) -> Vector:
    """a [k, vocab]: the probability that the child in place j is the accepted one and is token x, under a rule that walks down
    trees. p, q: the target's and the draft's law [vocab]."""
    siblings = formula_of(rule).siblings
    assert siblings is not None
    return siblings[selection](p, q, k)


def expected_tokens_of_round(
    rule: str, target_law: LawOf, plan: Plan, context: tuple[int, ...], depth: int, ends: frozenset[int]
) -> float:
    """Expected emitted tokens of the round after `context` over a chain at most `depth` long; see `expected_on_chain`."""
    return expected_on_chain(formula_of(rule).chain, target_law, plan, context, depth, ends)


def expected_tokens_of_tree(
    rule: str, kind: TreeKind, target_law: LawOf, context: tuple[int, ...], depth: int, ends: frozenset[int]
) -> float:
    """Expected emitted tokens of the round after `context`, trees cut to `depth` levels; nothing follows a token of `ends`."""
    if isinstance(kind, GuessedKind):
        return formula_of(rule).guesses(kind.paths(context, depth) if depth > 0 else [], target_law, context, ends)
    if kind.shape.is_chain and kind.selection != "fixed":
        return expected_tokens_of_round(rule, target_law, kind.plan, context, min(depth, kind.shape.depth), ends)
    shape = kind.shape
    allowed = {node for level in shape.levels[: max(depth, 0)] for node in level}

    def places(node: int) -> tuple[int, ...]:
        return tuple(child for child in shape.children.get(node, ()) if child in allowed)

    def p(path: tuple[int, ...]) -> Vector:
        return target_law(context, path)

    def q(path: tuple[int, ...]) -> Vector:
        return np.asarray(kind.plan(context, path), dtype=np.float64)

    return tree_formula(rule, kind.selection)(kind.selection, places, p, q, ends)
