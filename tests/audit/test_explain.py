"""What a rule does with one draft, against the enumeration of the same rule over every token."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from draftproof.audit.white_box.explain import explain
from draftproof.core.enumerate import outcomes
from draftproof.core.rules import RULES
from draftproof.core.tree import TreeShape
from one_round import PathLaws, drafted

VOCAB = 5
CHAIN, TREE = TreeShape.chain(3), TreeShape.from_levels((2, 2))
KINDS = [
    ("token", CHAIN, "iid"),
    ("token", CHAIN, "fixed"),
    ("match", CHAIN, "iid"),
    ("block", CHAIN, "iid"),
    ("match", TREE, "fixed"),
    ("rrs", TREE, "without_replacement"),
    ("k_seq", TREE, "iid"),
    ("greedy_k", TREE, "top_k_plus_one"),
    ("traversal", TREE, "iid"),
]


def law(seed: int):
    def of(path):
        rng = np.random.default_rng([seed, len(path), *path])
        mass = rng.dirichlet(np.ones(VOCAB))
        return mass

    return of


@pytest.mark.parametrize(("rule", "shape", "selection"), KINDS)
def test_lengths_and_last_laws_are_those_of_the_whole_enumeration(rule, shape, selection):
    """Two drafts of each kind: every path's probability and the law of the token after it."""
    p, q = law(1), law(2)
    drafts = {
        draft.tokens: draft
        for _, draft in outcomes(lambda chance: drafted(q, shape, selection, chance), 5)
    }
    for draft in [*drafts.values()][:2]:
        laws = PathLaws(p, draft)
        joint = defaultdict(lambda: np.zeros(VOCAB))
        for outcome, verdict in outcomes(
            lambda chance, d=draft, t=laws: RULES[rule].verify(d, t, chance), 5
        ):
            joint[verdict.path][verdict.token] += outcome.probability
        lengths = defaultdict(float)
        for path, masses in joint.items():
            lengths[len(path)] += masses.sum()
            found = explain(RULES[rule], draft, laws, path)
            assert found.final_law == pytest.approx(masses / masses.sum(), abs=1e-12)
        assert found.lengths == pytest.approx(dict(lengths), abs=1e-12)
        assert found.mean == pytest.approx(
            sum(n * chance for n, chance in lengths.items()), abs=1e-12
        )


def test_a_path_that_the_rule_never_takes_has_no_law():
    p = lambda path: np.array([0.0, 1.0])  # noqa: E731
    draft = next(
        draft
        for _, draft in outcomes(
            lambda c: drafted(lambda path: np.array([1.0, 0.0]), CHAIN, "iid", c), 5
        )
    )
    found = explain(RULES["token"], draft, PathLaws(p, draft), (0,))
    assert found.final_law is None and found.lengths == {0: 1.0}
