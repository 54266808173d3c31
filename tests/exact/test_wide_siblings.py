"""Three and four siblings over five tokens: the law and the length of a round, under every rule and
every selection."""

from __future__ import annotations

import pytest

from draftproof.audit.exact import TOLERANCE, prove
from draftproof.audit.table import CHAIN_SELECTIONS, TREE_RULES, sibling_covering


def label(case):
    return f"{case.rule}-{case.draft.replace(' ', '_')}-{case.pair}-{case.params}"


@pytest.mark.parametrize("case", sibling_covering(), ids=label)
def test_law_and_length_are_exact(case):
    proof = prove(case)
    assert proof.tv <= TOLERANCE, proof.tv
    assert proof.length_error <= TOLERANCE, proof.length_error


def test_every_rule_meets_every_selection_it_declares():
    assert {(case.rule, case.draft.split()[0]) for case in sibling_covering()} == {
        *TREE_RULES,
        *CHAIN_SELECTIONS,
    }
