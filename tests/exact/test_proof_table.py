"""The proof: the decode loop's exact law is the target's, its expected length the rule's formula,
for every pair of factors."""

from __future__ import annotations

from itertools import combinations
from itertools import product as cartesian

import pytest

from draftproof.audit.exact import TOLERANCE, Case, compare, harness, prove
from draftproof.audit.guessing import guessed_kinds
from draftproof.audit.table import (
    CHAIN_RULES,
    DRAFTS,
    GUESSED,
    LENGTHS,
    PAIRS,
    PARAMETERS,
    SMALL_TREES,
    TREE_PAIRS,
    TREE_RULES,
    covering,
    guessed_covering,
    guessed_product,
    product,
    tree_case,
    tree_covering,
    tree_product,
)
from draftproof.core.pipeline import LawPipeline
from draftproof.core.rules import LOSSLESS, RULES

COVERING = covering()
TREE_COVERING = tree_covering()
GUESSED_COVERING = guessed_covering()


def label(case):
    draft = case.draft.replace(" ", "_")
    return f"{case.rule}-{draft}-{case.pair}-{case.params}-{case.num_speculative_tokens}"


def check(case):
    proof = prove(case)
    assert proof.tv <= TOLERANCE, f"TV {proof.tv} over {proof.rounds} rounds"
    assert proof.length_holds, f"expected tokens off by {proof.length_error}"


@pytest.mark.parametrize("case", COVERING, ids=label)
def test_law_and_length_are_exact(case):
    check(case)


@pytest.mark.parametrize("case", TREE_COVERING, ids=label)
def test_law_and_length_are_exact_on_trees(case):
    check(case)


@pytest.mark.parametrize("case", GUESSED_COVERING, ids=label)
def test_law_and_length_are_exact_on_guessed_trees(case):
    check(case)


@pytest.mark.proof
@pytest.mark.parametrize("case", list(guessed_product()), ids=label)
def test_full_product_of_guessed_trees(case):
    check(case)


@pytest.mark.proof
@pytest.mark.parametrize("case", list(product()), ids=label)
def test_full_product(case):
    check(case)


@pytest.mark.proof
@pytest.mark.parametrize("case", list(tree_product()), ids=label)
def test_full_product_of_trees(case):
    check(case)


@pytest.mark.proof
@pytest.mark.parametrize("kind", TREE_RULES, ids=lambda kind: " ".join(kind))
def test_whole_decode_loop_on_trees(kind):
    check(tree_case(kind, "plain", "lopsided", "markov", by="model ", rounds=None))


def test_covering_array_covers_every_pair():
    factors = [tuple(PARAMETERS), DRAFTS, CHAIN_RULES, PAIRS, LENGTHS]
    rows = [(c.params, c.draft, c.rule, c.pair, c.num_speculative_tokens) for c in COVERING]
    assert_pairs_met(factors, rows)


def test_covering_array_of_trees_covers_every_pair():
    factors = [tuple(PARAMETERS), TREE_RULES, SMALL_TREES, TREE_PAIRS]
    cases = [c for c in TREE_COVERING if c.rounds is not None]
    assert_pairs_met(
        factors,
        [(c.params, (c.rule, c.draft.split()[0]), c.draft.split()[1], c.pair) for c in cases],
    )
    whole_loop = {(c.rule, c.draft.split()[1]) for c in TREE_COVERING if c.rounds is None}
    assert whole_loop == set(TREE_RULES)


def test_covering_array_of_guessed_trees_covers_every_pair():
    rules = {rule for rule, selection in TREE_RULES if selection == "fixed"}
    rows = [(c.rule, c.draft, c.params, c.pair) for c in GUESSED_COVERING if c.rounds is not None]
    assert_pairs_met([tuple(rules), GUESSED, tuple(PARAMETERS), TREE_PAIRS], rows)


def test_guessed_trees_are_trees_and_chains_of_many_lengths():
    """So that the table above proves something: the toys' contexts make the drafters branch, run
    on, and fall silent."""
    kinds = guessed_kinds(LawPipeline(PARAMETERS["plain"], num_prompt_tokens=3, vocab_size=3))
    contexts = [c for n in range(1, 7) for c in cartesian(range(3), repeat=n)]
    for name in GUESSED:
        trees = [kinds[name].paths(context, 3) for context in contexts]
        assert {len(tree) for tree in trees} >= {0, 1, 2, 3}
        assert name == "suffix" or any(
            len(tree) > max(map(len, tree), default=0) for tree in trees
        ), "nothing branched"


def test_every_lossless_rule_is_in_a_table():
    assert {*CHAIN_RULES, *(rule for rule, _ in TREE_RULES)} == set(LOSSLESS)
    assert {name for name, rule in RULES.items() if rule.lossless} == set(LOSSLESS)


def assert_pairs_met(factors, rows):
    for i, j in combinations(range(len(factors)), 2):
        met = {(row[i], row[j]) for row in rows}
        assert met == {(a, b) for a in factors[i] for b in factors[j]}


def test_the_lossy_rule_is_seen_to_be_one():
    case = Case("match", "greedy", "full_history", "plain", PARAMETERS["plain"], 2)
    assert compare(case, harness(case, rule=RULES["typical"])).tv > 0.1
