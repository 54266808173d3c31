"""Drafters whose coming draft depends on more than the context: law and length exact, and what is
foretold is no tautology."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.audit import others
from draftproof.audit.cells import (
    head_covering,
    length_covering,
    other_covering,
    other_product,
    prove_cell,
)
from draftproof.audit.exact import TOLERANCE, Case
from draftproof.audit.table import PARAMETERS
from draftproof.drafters.lookahead import LookaheadSession


def name(case):
    return f"{case.rule}-{case.draft}-{case.pair}-{case.params}"


@pytest.mark.parametrize("case", other_covering(), ids=name)
def test_the_law_and_the_length_are_exact(case):
    proof = prove_cell(case)
    assert proof.tv <= TOLERANCE
    assert proof.length_error <= TOLERANCE


@pytest.mark.proof
@pytest.mark.parametrize("case", list(other_product()), ids=name)
def test_all_of_them(case):
    assert prove_cell(case).holds


def test_every_kind_meets_every_rule_that_takes_it():
    met = {(case.draft, case.rule) for case in other_covering()}
    assert met == {(kind, rule) for kind in others.KINDS for rule in others.rules_of(kind)}
    assert {case.params for case in other_covering()} == set(PARAMETERS)


def test_a_rule_alone_can_be_asked_for():
    for covering in (other_covering, head_covering, length_covering):
        assert {case.rule for case in covering(["match"])} == {"match"}


@pytest.mark.parametrize("kind", ["early_exit", "layer_skip"])
def test_slices_draft_by_other_laws_than_the_target(kind):
    """A proof of a draft model equal to the target would say little."""
    target, slices = others._layers()
    assert np.abs(target.law((0, 1, 0)) - slices[kind].law((0, 1, 0))).sum() > 0.05


def test_lookahead_drafts_in_the_proof(monkeypatch):
    drafted = []
    plain = LookaheadSession.propose

    def watched(self, context, draft):
        plain(self, context, draft)
        drafted.append(draft.num_nodes)

    monkeypatch.setattr(LookaheadSession, "propose", watched)
    assert prove_cell(Case("match", "lookahead", "markov", "plain", PARAMETERS["plain"], 2)).holds
    assert max(drafted) > 1
