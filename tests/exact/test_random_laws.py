"""A search for laws, a draft and parameters under which the decode loop is off: hypothesis makes
the laws, as fractions with zeros, and picks the cell of the proof table. `make search`;
SEARCH_EXAMPLES says how long."""

from __future__ import annotations

import os
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from draftproof.audit import exact
from draftproof.audit.mutants import _Rule, with_parts
from draftproof.audit.table import (
    CHAIN_RULES,
    DRAFTS,
    LENGTHS,
    PARAMETERS,
    SMALL_TREES,
    TREE_RULES,
    tree_case,
)
from draftproof.audit.toys import EOS, VOCAB, Pair
from draftproof.models.table import TableModel

EXAMPLES = int(os.environ.get("SEARCH_EXAMPLES", "150"))
LAW = st.lists(st.integers(0, 16), min_size=VOCAB, max_size=VOCAB).filter(
    lambda parts: sum(part > 0 for part in parts) > 1
)
"""At least two tokens are left, so that no ban of one empties the law."""
TABLE = st.lists(LAW, min_size=2 * VOCAB, max_size=2 * VOCAB)
CHAIN = st.builds(
    lambda rule, draft, params, length: exact.Case(
        rule, draft, "found", params, PARAMETERS[params], length
    ),
    st.sampled_from(CHAIN_RULES),
    st.sampled_from(DRAFTS),
    st.sampled_from(list(PARAMETERS)),
    st.sampled_from(LENGTHS),
)
TREE = st.builds(
    lambda kind, params, shape: tree_case(kind, params, shape, "found"),
    st.sampled_from(TREE_RULES),
    st.sampled_from(list(PARAMETERS)),
    st.sampled_from(SMALL_TREES),
)


def model(table, **kwargs):
    """A law for every last token, another one at odd lengths."""
    laws = np.array(table, dtype=np.float64)
    laws /= laws.sum(axis=1, keepdims=True)
    return TableModel(
        lambda prefix: laws[2 * prefix[-1] + len(prefix) % 2], vocab_size=VOCAB, **kwargs
    )


def proof_of(case, target, draft, rule=None):
    found = Pair("found", model(target, eos_token_ids=(EOS,)), model(draft))
    with patch.object(exact, "pairs", lambda: {"found": found}):
        return exact.compare(case, exact.harness(case, rule=rule))


@pytest.mark.search
@pytest.mark.timeout(2 * 3600)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(case=st.one_of(CHAIN, TREE), target=TABLE, draft=TABLE)
def test_no_laws_are_found_that_a_rule_does_not_keep(case, target, draft):
    proof = proof_of(case, target, draft)
    assert proof.tv <= exact.TOLERANCE, proof
    assert proof.length_holds, proof


@settings(max_examples=20, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
@given(target=TABLE, draft=TABLE)
def find_a_fault(target, draft):
    case = exact.Case("token", "sampled", "found", "plain", PARAMETERS["plain"], 1)
    assert proof_of(case, target, draft, _Rule(with_parts(correct=lambda p, q: p))).holds


def test_the_search_finds_a_fault():
    with pytest.raises(AssertionError):
        find_a_fault()
