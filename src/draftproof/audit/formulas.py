"""What a round of each rule is expected to emit, from the rule's own file: law and length together
are what the proof compares.

A missing bonus token leaves the law exact and shows only in the length. So a rule is proven with
its formula or not at all."""

from __future__ import annotations

import numpy as np

from draftproof.audit.kinds import GuessedKind, Plan, TreeKind
from draftproof.core.expected_chains import LawOf, Vector, expected_on_chain
from draftproof.core.expected_trees import Tokens, from_the_top
from draftproof.core.records import Selection
from draftproof.core.rules import STATED
from draftproof.core.rules.stated import Formula
from draftproof.errors import UsageError


def formula_of(rule: str) -> Formula:
    """What the rule's file states; UsageError says where to add it."""
    formula = STATED[rule].expected if rule in STATED else None
    if formula is None:
        raise UsageError(
            f"rule {rule!r} has no expected length to be proven with: state expected= in "
            "the STATED of its file "
            "(docs/add_a_rule.md)"
        )
    return formula


def tree_formula(rule: str, selection: Selection) -> Tokens:
    """Of a rule over trees of a selection; UsageError says what to add."""
    formula = formula_of(rule)
    if formula.tree is not None:
        return formula.tree
    if formula.siblings is None or selection not in formula.siblings:
        raise UsageError(
            f"rule {rule!r} has no expected length for {selection} siblings: add it to "
            "expected= in the STATED "
            "of its file (docs/add_a_rule.md)"
        )
    return from_the_top(formula.siblings)


def accepted_children(rule: str, selection: Selection, p: Vector, q: Vector, k: int) -> Vector:
    """a [k, vocab]: the probability that the child in place j is the accepted one and is token x,
    under a rule that walks down trees. p, q: the target's and the draft's law [vocab]."""
    siblings = formula_of(rule).siblings
    assert siblings is not None
    return siblings[selection](p, q, k)


def expected_tokens_of_round(
    rule: str,
    target_law: LawOf,
    plan: Plan,
    context: tuple[int, ...],
    depth: int,
    ends: frozenset[int],
) -> float:
    """Expected emitted tokens of the round after `context` over a chain at most `depth` long; see
    `expected_on_chain`."""
    return expected_on_chain(formula_of(rule).chain, target_law, plan, context, depth, ends)


def expected_tokens_of_tree(
    rule: str,
    kind: TreeKind,
    target_law: LawOf,
    context: tuple[int, ...],
    depth: int,
    ends: frozenset[int],
) -> float:
    """Expected emitted tokens of the round after `context`, trees cut to `depth` levels; nothing
    follows a token of `ends`."""
    if isinstance(kind, GuessedKind):
        return formula_of(rule).guesses(
            kind.paths(context, depth) if depth > 0 else [], target_law, context, ends
        )
    if kind.shape.is_chain and kind.selection != "fixed":
        return expected_tokens_of_round(
            rule, target_law, kind.plan, context, min(depth, kind.shape.depth), ends
        )
    shape = kind.shape
    allowed = {node for level in shape.levels[: max(depth, 0)] for node in level}

    def places(node: int) -> tuple[int, ...]:
        return tuple(child for child in shape.children.get(node, ()) if child in allowed)

    def p(path: tuple[int, ...]) -> Vector:
        return target_law(context, path)

    def q(path: tuple[int, ...]) -> Vector:
        return np.asarray(kind.plan(context, path), dtype=np.float64)

    return tree_formula(rule, kind.selection)(kind.selection, places, p, q, ends)
