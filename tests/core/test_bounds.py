"""Several drafts at one position: the min-cut bound against the linear programme, every rule below
it, and the rules' formulas."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq, linprog

from draftproof.audit.formulas import accepted_children
from draftproof.core.bounds import (
    greedy_k_acceptance,
    gumbel_acceptance,
    iid_bound,
    k_seq_acceptance,
    rrs_iid_acceptance,
)
from draftproof.core.coupled import gumbel_draw
from draftproof.core.rules.k_seq import division_factor
from draftproof.errors import UsageError


def laws(seed, vocab=4, sharpness=1.0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(vocab, sharpness)), rng.dirichlet(np.full(vocab, sharpness))


def best_coupling(p, q, k):
    """The greatest chance that Y ~ p is among k i.i.d. drafts, by linear programming over (drafts,
    Y)."""
    drafts = list(product(range(len(p)), repeat=k))
    pairs = [(d, y) for d in range(len(drafts)) for y in range(len(p))]
    rows = [[float(d == i) for d, _ in pairs] for i in range(len(drafts))] + [
        [float(y == i) for _, y in pairs] for i in range(len(p))
    ]
    masses = [np.prod(q[list(draft)]) for draft in drafts] + list(p)
    gain = [-float(y in drafts[d]) for d, y in pairs]
    return -linprog(gain, A_eq=rows, b_eq=masses).fun


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_bound_is_the_linear_programmes_optimum(seed, k):
    p, q = laws(seed, vocab=3)
    assert iid_bound(p, q, k) == pytest.approx(best_coupling(p, q, k), abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_no_rule_for_iid_drafts_beats_the_bound(seed, k):
    p, q = laws(seed, vocab=50, sharpness=0.3)
    bound = iid_bound(p, q, k)
    assert rrs_iid_acceptance(p, q, k) <= bound + 1e-12
    assert (1 - 1 / np.e) * bound - 1e-12 <= k_seq_acceptance(p, q, k) <= bound + 1e-12
    if k == 1:
        overlap = np.minimum(p, q).sum()
        for value in (
            bound,
            rrs_iid_acceptance(p, q, k),
            k_seq_acceptance(p, q, k),
            greedy_k_acceptance(p, q, k),
        ):
            assert value == pytest.approx(overlap, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("k", [2, 3])
def test_the_formulas_are_the_sums_over_children(seed, k):
    p, q = laws(seed)
    assert rrs_iid_acceptance(p, q, k) == pytest.approx(
        accepted_children("rrs", "iid", p, q, k).sum(), abs=1e-12
    )
    assert k_seq_acceptance(p, q, k) == pytest.approx(
        accepted_children("k_seq", "iid", p, q, k).sum(), abs=1e-12
    )
    greedy = accepted_children("greedy_k", "top_k_plus_one", p, q, k).sum()
    assert greedy_k_acceptance(p, q, k) == pytest.approx(greedy, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_rho_is_the_root_of_its_equation_from_above(seed):
    p, q = laws(seed, vocab=6)
    for k in (2, 4, 8):
        rho = division_factor(p, q, k)

        def surplus(r, k=k):
            beta = np.minimum(q, p / r).sum()
            return 1 - (1 - beta) ** k - r * beta

        assert 1 <= rho <= k
        assert surplus(rho) <= 0, "below the root the rule is biased"
        if rho > 1:
            assert rho == pytest.approx(brentq(surplus, 1.0, k, xtol=1e-15), abs=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_gumbel_lies_between_its_bounds_and_above_match(seed):
    p, q = laws(seed, vocab=12, sharpness=0.5)
    tv = 0.5 * np.abs(p - q).sum()
    assert (1 - tv) / (1 + tv) - 1e-12 <= gumbel_acceptance(p, q) <= 1 - tv + 1e-12
    assert gumbel_acceptance(p, q) >= (p * q).sum()


def test_gumbel_draws_agree_as_often_as_the_formula_says():
    """4,000 positions of fixed keys; a right source leaves 4.5 standard errors with probability
    7e-6."""
    p, q = laws(4, vocab=5)
    agreed = [
        int(gumbel_draw(p, (3, 9), t)) == int(gumbel_draw(q, (3, 9), t)) for t in range(4_000)
    ]
    rate = gumbel_acceptance(p, q)
    assert abs(np.mean(agreed) - rate) <= 4.5 * np.sqrt(rate * (1 - rate) / len(agreed))


def test_bad_values_are_refused():
    with pytest.raises(UsageError, match="k must be a whole number of at least 1"):
        iid_bound([0.5, 0.5], [0.5, 0.5], 0)
    with pytest.raises(UsageError, match="one vocabulary"):
        iid_bound([0.5, 0.5], [1.0], 2)
