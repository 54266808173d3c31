"""The proof: the decode loop's exact law is the target's, its expected length the rule's formula, for every pair of factors."""

from __future__ import annotations

from itertools import combinations

import pytest

from draftproof.audit.exact import TOLERANCE, prove
from draftproof.audit.table import DRAFTS, LENGTHS, PAIRS, PARAMETERS, covering, product
from draftproof.core.rules import RULES

COVERING = covering()


def label(case):
    return f"{case.rule}-{case.draft}-{case.pair}-{case.params}-{case.num_speculative_tokens}"


def check(case):
    proof = prove(case)
    assert proof.tv <= TOLERANCE, f"TV {proof.tv} over {proof.rounds} rounds"
    assert proof.length_error <= TOLERANCE, f"expected tokens off by {proof.length_error}"


@pytest.mark.parametrize("case", COVERING, ids=label)
def test_law_and_length_are_exact(case):
    check(case)


@pytest.mark.proof
@pytest.mark.parametrize("case", list(product()), ids=label)
def test_full_product(case):
    check(case)


def test_covering_array_covers_every_pair():
    factors = [tuple(PARAMETERS), DRAFTS, tuple(RULES), PAIRS, LENGTHS]
    rows = [(c.params, c.draft, c.rule, c.pair, c.num_speculative_tokens) for c in COVERING]
    for i, j in combinations(range(len(factors)), 2):
        met = {(row[i], row[j]) for row in rows}
        assert met == {(a, b) for a in factors[i] for b in factors[j]}
