"""The optimum beside what rules achieve: no rule passes it, some reach it, and it is the published
bound where there is one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from draftproof.audit.ceilings import achieved, ceiling
from draftproof.audit.formulas import accepted_children
from draftproof.core.bounds import iid_bound
from draftproof.core.expected_trees import draws
from draftproof.core.rules import LOSSLESS


def test_no_rule_passes_its_ceiling_and_every_rule_is_shown():
    rows = achieved()
    assert {row.rule for row in rows} == set(LOSSLESS)
    assert all(0.2 < row.accepted <= row.ceiling + 1e-12 <= 1 + 2e-12 for row in rows)
    reached = {
        (r.rule, r.selection) for r in rows if r.accepted == pytest.approx(r.ceiling, abs=1e-12)
    }
    optimal = {("token", "iid"), ("block", "iid"), ("greedy_k", "top_k_plus_one")}
    assert reached >= optimal | {(rule, "fixed") for rule in LOSSLESS if rule != "gumbel"}
    assert not reached & {("match", "iid"), ("gumbel", "iid"), ("rrs", "iid"), ("k_seq", "iid")}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_for_independent_drafts_it_is_the_bound_by_one_sort(seed, k):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
    sets = [(drawn, float(np.prod(q[list(drawn)]))) for drawn in product(range(4), repeat=k)]
    assert ceiling(p, sets) == pytest.approx(iid_bound(p, q, k), abs=1e-12)


@pytest.mark.parametrize(
    "rule, selection", [("rrs", "without_replacement"), ("greedy_k", "top_k_plus_one")]
)
def test_it_bounds_the_formulas_of_other_siblings(rule, selection):
    rng = np.random.default_rng(7)
    for _ in range(10):
        p, q = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
        if selection == "without_replacement":
            sets = list(draws(selection, q, 2))
        else:
            top = int(np.argmax(q))
            rest = np.where(np.arange(4) == top, 0.0, q) / (1 - q[top])
            sets = [((top, token), float(rest[token])) for token in range(4) if token != top]
        accepted = accepted_children(rule, selection, p, q, 2).sum()
        assert accepted <= ceiling(p, sets) + 1e-12
        if rule == "greedy_k":
            assert accepted == pytest.approx(ceiling(p, sets), abs=1e-12)
