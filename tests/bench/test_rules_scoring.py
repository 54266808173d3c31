"""benchmarks/rules_scoring.py: its expectations are the enumerator's, and its coupled chances those
of shared noise."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from draftproof.audit.formulas import accepted_children
from draftproof.core.bounds import gumbel_acceptance
from draftproof.core.enumerate import outcomes
from draftproof.core.records import ROOT, Draft
from draftproof.core.rules import RULES
from draftproof.core.siblings import without
from draftproof.core.tree import TreeShape

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from rules_scoring import (  # noqa: E402
    CHAIN_RULES,
    TREE_RULES,
    TREES,
    Held,
    acceptance_by_place,
    ceiling,
    coupled_chance,
    coupled_chances,
    expected_tokens,
)

VOCAB = 5


class Rows(Held):
    """The same rows for the enumerator, which draws every token."""

    def draw(self, node, chance):
        return chance.draw_target(self.row(node), len(self._draft.nodes_to(node)))


def test_acceptance_by_place_is_that_of_the_formulas():
    """`rrs` without replacement by means over draws: 300 rounds of 8, within 5 standard errors."""
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.full(VOCAB, 0.6)), rng.dirichlet(np.full(VOCAB, 0.6))
    found = acceptance_by_place(p, q, 3, rng)
    for rule, selection in (("greedy_k", "top_k_plus_one"), ("match, fixed", "fixed")):
        for k in (1, 2, 3):
            exact = accepted_children(rule.split(",")[0], selection, p, q, k).sum(axis=1)
            assert found[rule][k - 1] == pytest.approx(exact.tolist(), abs=1e-12)
    plays = np.array([acceptance_by_place(p, q, 3, rng)["rrs"][2] for _ in range(300)])
    exact = accepted_children("rrs", "without_replacement", p, q, 3).sum(axis=1)
    assert np.all(np.abs(plays.mean(axis=0) - exact) <= 5 * plays.std(axis=0) / 300**0.5 + 1e-12)


def law_after(seed):
    return lambda path: np.random.default_rng([seed, *path]).dirichlet(np.full(VOCAB, 0.6))


def drafted(shape, selection, rng, draft):
    """A draft of this shape, drawn as `selection` says (any draft will do: expectations are given
    the draft)."""
    tokens, parents, laws = [], [], {}
    places = {ROOT: ()}
    for parent, children in shape.children.items():
        law = draft(places[parent])
        laws[parent] = law
        likely = [int(token) for token in np.argsort(-law)]
        for place, child in enumerate(children):
            taken = tokens[len(tokens) - place :]
            fixed = selection == "fixed" or (
                selection == "top_k_plus_one" and place < len(children) - 1
            )
            left = law if selection == "iid" else without(law, taken)
            tokens.append(likely[place] if fixed else int(rng.choice(VOCAB, p=left / left.sum())))
            parents.append(parent)
            places[child] = (*places[parent], tokens[-1])
    return Draft(tuple(tokens), tuple(parents), {} if selection == "fixed" else laws, selection)


KINDS = {(rule, kind) for rule, kind in TREE_RULES if rule != "gumbel"}


@pytest.mark.parametrize("rule, selection", sorted(KINDS))
@pytest.mark.parametrize("shape", TREES)
def test_expectations_are_the_enumerators(rule, selection, shape):
    rng = np.random.default_rng(1)
    target, draft = law_after(1), law_after(2)
    for _ in range(2):
        held = drafted(TREES[shape], selection, rng, draft)
        found = expected_tokens(rule, held, Held(held, target))
        ways = outcomes(
            lambda chance, held=held: RULES[rule].verify(held, Rows(held, target), chance), 5
        )
        assert found == pytest.approx(
            sum(o.probability * (len(v.path) + 1) for o, v in ways), abs=1e-12
        )


@pytest.mark.parametrize(
    "rule", sorted({rule for rule, _ in CHAIN_RULES} - {"gumbel"} | {"typical"})
)
def test_expectations_of_chains_are_the_enumerators(rule):
    rng = np.random.default_rng(1)
    target, draft = law_after(1), law_after(2)
    for _ in range(5):
        held = drafted(TreeShape.chain(4), "iid", rng, draft)
        found = expected_tokens(rule, held, Held(held, target))
        ways = outcomes(
            lambda chance, held=held: RULES[rule].verify(held, Rows(held, target), chance), 5
        )
        assert found == pytest.approx(
            sum(o.probability * (len(v.path) + 1) for o, v in ways), abs=1e-12
        )


def test_in_the_mean_over_drafts_the_ceiling_is_above_block_and_block_above_token():
    target, draft = law_after(1), law_after(2)
    means = dict.fromkeys(("token", "block", "ceiling"), 0.0)
    for first in range(VOCAB):
        for second in range(VOCAB):
            held = Draft((first, second), (ROOT, 0), {ROOT: draft(()), 0: draft((first,))}, "iid")
            mass = draft(())[first] * draft((first,))[second]
            for rule in ("token", "block"):
                means[rule] += mass * expected_tokens(rule, held, Held(held, target))
            means["ceiling"] += mass * ceiling(held, target, draft)
    assert means["token"] < means["block"] - 1e-3
    assert means["block"] < means["ceiling"] - 1e-3


def test_a_coupled_draft_is_picked_as_often_as_the_formula_says():
    rng = np.random.default_rng(3)
    for _ in range(20):
        p, q = rng.dirichlet(np.full(VOCAB, 0.6)), rng.dirichlet(np.full(VOCAB, 0.6))
        total = sum(q[x] * coupled_chance(p, q, x) for x in range(VOCAB))
        assert total == pytest.approx(gumbel_acceptance(p, q), abs=1e-12)


def test_coupled_siblings_are_picked_as_often_as_by_shared_noise():
    """100,000 races of a fixed seed against the conditional chances; both means leave 4.5 standard
    errors with 7e-6."""
    rng = np.random.default_rng(4)
    p, q = rng.dirichlet(np.full(VOCAB, 0.6)), rng.dirichlet(np.full(VOCAB, 0.6))
    noise = rng.exponential(size=(100_000, VOCAB))
    order, picks = np.argsort(noise / q, axis=1)[:, :2], np.argmin(noise / p, axis=1)
    for first, second in ((0, 1), (1, 0), (2, 1)):
        these = (order[:, 0] == first) & (order[:, 1] == second)
        chances, error = coupled_chances(p, q, [first, second], rng.exponential(size=(4_000, 2)))
        for token, chance in zip((first, second), chances, strict=True):
            seen = (picks[these] == token).mean()
            assert (
                abs(seen - chance)
                <= 4.5 * np.hypot((chance * (1 - chance) / these.sum()) ** 0.5, error) + 1e-9
            )
    alone, error = coupled_chances(p, q, [2], rng.exponential(size=(4_000, 1)))
    assert abs(alone[0] - coupled_chance(p, q, 2)) <= 4.5 * error
