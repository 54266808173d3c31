"""Laws that nearly agree, nearly share nothing, or nearly sum to 1: what is left over is small, and
must not be thrown away.

A round's law is summed over every outcome and must be the target's to 1e-14, so a threshold on a
mass shows wherever it is above the masses tried here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof.audit.table import CHAIN_SELECTIONS, TREE_RULES
from draftproof.core.chance import KeyedChance, stream_key
from draftproof.core.laws import inverse_cdf, residual
from draftproof.core.records import ROOT
from draftproof.core.rules import LOSSLESS
from draftproof.core.tree import TreeShape
from draftproof.drafters.builder import DraftBuilder
from one_round import normalised, tv_of_round

MASSES = (1e-3, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)
CHAINS = [
    (name, selection)
    for name, rule in LOSSLESS.items()
    for selection in ("iid", "fixed")
    if selection in rule.selections
]
EXACT = 1e-14


def target(path):
    """Depends on the path."""
    return [np.array([0.5, 0.3, 0.2]), np.array([0.25, 0.35, 0.4])][
        len(path) % 2 if sum(path) % 2 else 0
    ]


def near(mass):
    """The target's law with `mass` moved from the second token to the others."""
    return lambda path: target(path) + mass * np.array([0.6, -1.0, 0.4])


def apart(mass):
    """(target, draft) that have tokens of `mass` in common and no more."""
    p = np.array([1 - mass, 0.5 * mass, 0.5 * mass])
    q = np.array([mass / 3, 1 - mass, 2 * mass / 3])
    return (lambda path: p), (lambda path: q)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("rule, selection", [*CHAINS, *CHAIN_SELECTIONS])
def test_chains(rule, selection, mass):
    shape = TreeShape.chain(3)
    assert tv_of_round(rule, target, near(mass), shape, selection) <= EXACT
    assert tv_of_round(rule, near(mass), target, shape, selection) <= EXACT
    assert tv_of_round(rule, *apart(mass), shape, selection) <= EXACT


@pytest.mark.parametrize("mass", MASSES[1::2])
@pytest.mark.parametrize("rule, selection", TREE_RULES)
def test_trees(rule, selection, mass):
    shape = TreeShape((-1, -1, 0)) if rule == "traversal" else TreeShape.from_levels((3,))
    assert tv_of_round(rule, target, near(mass), shape, selection) <= EXACT
    assert tv_of_round(rule, near(mass), target, shape, selection) <= EXACT
    assert tv_of_round(rule, *apart(mass), shape, selection) <= EXACT


@pytest.mark.parametrize("sum_", [1 - 1e-4, 1 + 1e-4, 1 - 1e-6, 1 + 1e-6])
@pytest.mark.parametrize("rule, selection", [*CHAINS, *TREE_RULES])
def test_draft_laws_that_do_not_quite_sum_to_1(rule, selection, sum_):
    """The law in the ratio is that of the draw, which is normalised."""
    shape = TreeShape((-1, -1, 0)) if LOSSLESS[rule].trees else TreeShape.chain(2)
    assert tv_of_round(rule, target, lambda path: sum_ * near(0.2)(path), shape, selection) <= EXACT


@pytest.mark.parametrize("sum_", [1 - 1e-4, 1 + 1e-4, 1 - 1e-6, 1 + 1e-6, 0.5, 3.0])
@pytest.mark.parametrize("wrap", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_the_builder_records_a_law_that_sums_to_1(sum_, wrap):
    law = sum_ * np.array([0.5, 0.25, 0.125, 0.125])
    for draw in (
        lambda b: b.draw(wrap(law)),
        lambda b: b.draw_children(wrap(law), 2, "without_replacement"),
    ):
        builder = DraftBuilder(KeyedChance(stream_key(1, 0), 4), depth=1, vocab_size=4, max_nodes=2)
        draw(builder)
        recorded = builder.build().laws[ROOT]
        assert float(recorded.sum()) == pytest.approx(1.0, abs=1e-15)
        np.testing.assert_allclose(np.asarray(recorded), normalised(law), rtol=1e-15)


@pytest.mark.parametrize("sum_", [1 - 1e-4, 1 + 1e-4, 0.5, 2.0])
def test_a_draw_is_as_from_the_normalised_law(sum_):
    law = np.array([0.25, 0.25, 0.25, 0.25])
    for uniform in (0.0, 0.2499, 0.2501, 0.4999, 0.5001, 0.7499, 0.7501, 0.99999):
        assert int(inverse_cdf(sum_ * law, uniform)) == int(4 * uniform)


@pytest.mark.parametrize("mass", MASSES)
def test_a_residual_keeps_what_is_small(mass):
    """Of float64 laws, and of float32 ones as far as they can tell the difference."""
    left = residual(target(()), near(mass)(()))
    np.testing.assert_allclose(left, [0.0, mass, 0.0], atol=1e-16, rtol=1e-3)
    for dtype in (torch.float32, torch.float64):
        p, q = (torch.tensor(law(()), dtype=dtype) for law in (target, near(mass)))
        expected = np.maximum(p.double().numpy() - q.double().numpy(), 0.0)
        if expected.any():
            np.testing.assert_array_equal(np.asarray(residual(p, q)), expected)
