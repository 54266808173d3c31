"""The chance of each sibling, rule by rule: against formulas written apart, against enumerated
rounds, against shared noise."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

from draftproof.audit.formulas import accepted_children
from draftproof.core.enumerate import outcomes
from draftproof.core.records import ROOT
from draftproof.core.rules import RULES
from draftproof.core.tree import TreeShape
from draftproof.drafters.builder import DraftBuilder
from draftproof.plan.acceptance import Judge
from draftproof.plan.rounds import trace_of_tree
from draftproof.plan.siblings import coupled_weights, likeliest, sibling_chances

KINDS = [
    ("rrs", "iid"),
    ("rrs", "without_replacement"),
    ("k_seq", "iid"),
    ("greedy_k", "top_k_plus_one"),
    ("match", "iid"),
    ("match", "without_replacement"),
    ("match", "top_k_plus_one"),
]


def pair(seed: int, vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """Two laws [vocab]; every third pair has zeros on both sides."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(vocab, 0.6)), rng.dirichlet(np.full(vocab, 0.6))
    if seed % 3 == 0:
        p[seed % vocab] = q[(seed + 1) % vocab] = 0.0
    return p / p.sum(), q / q.sum()


@pytest.mark.parametrize(("rule", "selection"), KINDS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_chances_times_the_targets_law_are_the_masses_of_the_formulas(
    rule: str, selection: str, count: int
) -> None:
    for seed in range(9):
        p, q = pair(seed, 4)
        masses = accepted_children(rule, selection, p, q, count)
        for token in range(4):
            found = p[token] * sibling_chances(rule, selection, p, q, token, count)
            assert np.allclose(found, masses[:, token], rtol=0, atol=1e-12), (seed, token)


def enumerated_tokens(
    rule: str, selection: str, shape: TreeShape, target: np.ndarray, draft: np.ndarray
) -> float:
    """Expected emitted tokens of one round after token 0, over every draft and every coin of the
    rule; laws [v, v] by the last token."""

    class Rows:
        def __init__(self, tree):
            self.tree = tree

        def row(self, node):
            return target[0 if node == ROOT else self.tree.tokens[node]]

        def draw(self, node, chance):
            return chance.draw_target(self.row(node), 100 + node)

    def run(chance):
        builder = DraftBuilder(
            chance, depth=shape.depth, vocab_size=len(target), max_nodes=len(shape)
        )
        placed = {ROOT: ROOT}
        for parent, children in shape.children.items():
            if parent in placed:
                law = draft[0 if parent == ROOT else builder.token(placed[parent])]
                nodes = builder.draw_children(law, len(children), selection, placed[parent])
                placed.update(zip(children, nodes, strict=False))
        tree = builder.build()
        return 1 + len(RULES[rule].verify(tree, Rows(tree), chance).path)

    return sum(outcome.probability * tokens for outcome, tokens in outcomes(run, 5))


def foretold_tokens(
    rule: str, selection: str, shape: TreeShape, target: np.ndarray, draft: np.ndarray
) -> float:
    """The same from every text that the target can write: the first round's levels, weighed by the
    text's probability."""
    width = max(len(children) for children in shape.children.values())
    judge = Judge(rule, width=width, selection=selection)
    total = 0.0
    for text in itertools.product(range(len(target)), repeat=shape.depth + 1):
        before = (0, *text[:-1])
        probability = float(np.prod([target[a, b] for a, b in zip(before, text, strict=True)]))
        if probability > 0:
            columns = judge.laws(target[list(before)], draft[list(before)], np.array(text))
            trace = trace_of_tree(partial(judge.places, columns), np.ones(len(text)), shape)
            total += probability * (1 + np.cumprod(trace.accept[0]).sum())
    return total


@pytest.mark.parametrize("parents", [(-1, -1, 0), (-1, -1, 0, 0), (-1, -1, 0, 1, 1)], ids=str)
@pytest.mark.parametrize(("rule", "selection"), KINDS)
def test_a_round_is_foretold_as_enumerating_the_rule_has_it(
    rule: str, selection: str, parents: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(len(parents))
    target = rng.dirichlet(np.ones(3), size=3)
    draft = 0.5 * target + 0.5 * rng.dirichlet(np.ones(3), size=3)
    shape = TreeShape(parents)
    exact = enumerated_tokens(rule, selection, shape, target, draft)
    assert foretold_tokens(rule, selection, shape, target, draft) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(
    ("selection", "count"), [("without_replacement", 3), ("top_k_plus_one", 3), ("iid", 2)]
)
def test_coupled_siblings_are_where_shared_noise_puts_them(selection: str, count: int) -> None:
    """400,000 noises: shares are known to 0.0025 where the token came 40,000 times; a gap of 0.015
    is below 1e-8."""
    p, q = pair(1, 5)
    noise = np.random.default_rng(0).exponential(size=(400_000, 5))
    ours = np.argmin(noise / p, axis=1)
    fixed = likeliest(q, count - 1) if selection == "top_k_plus_one" else []
    rest = np.where(np.isin(np.arange(5), fixed), np.inf, noise / q)
    drawn = np.argsort(rest, axis=1)[:, : count - len(fixed)]
    drawn = drawn if selection != "iid" else np.repeat(drawn[:, :1], count, axis=1)
    siblings = np.hstack([np.tile(fixed, (len(noise), 1)).astype(int), drawn])
    checked = 0
    for token in range(5):
        chosen = siblings[ours == token]
        if len(chosen) > 40_000:
            checked += 1
            first = np.where((chosen == token).any(axis=1), (chosen == token).argmax(axis=1), -1)
            shares = [float((first == place).mean()) for place in range(count)]
            assert sibling_chances("gumbel", selection, p, q, token, count) == pytest.approx(
                shares, abs=0.015
            )
    assert checked >= 2


def test_the_first_coupled_sibling_is_the_coupled_chain() -> None:
    p, q = pair(2, 6)
    chain = Judge("gumbel").laws(np.tile(p, (6, 1)), np.tile(q, (6, 1)), np.arange(6))[:, 0]
    tree = [
        sibling_chances("gumbel", "without_replacement", p, q, token, 2)[0] for token in range(6)
    ]
    assert tree == pytest.approx(chain.tolist(), abs=1e-12)
    assert not coupled_weights(p, np.where(np.arange(6) == 0, 0.0, q), 0).any(), (
        "a token that is never drafted is never a sibling"
    )


def test_many_earlier_siblings_are_drawn_and_the_mean_is_right() -> None:
    """60 tokens, three siblings: the earliest is drawn. Over 300 seeds the mean is within 5 errors
    of the whole sum."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.full(60, 0.3)), rng.dirichlet(np.full(60, 0.3))
    token = int(np.argmax(p))
    exact = accepted_children("rrs", "without_replacement", p, q, 3)[:, token] / p[token]
    found = np.array(
        [sibling_chances("rrs", "without_replacement", p, q, token, 3, seed) for seed in range(300)]
    )
    error = found.std(axis=0) / 300**0.5
    assert np.all(np.abs(found.mean(axis=0) - exact) <= 5 * error + 1e-12)
    assert found[:, :2] == pytest.approx(np.tile(exact[:2], (300, 1)), abs=1e-12)


def test_equally_likely_tokens_are_taken_in_the_order_of_their_ids() -> None:
    law = np.array([0.2, 0.0, 0.3, 0.2, 0.3, 0.0])
    assert likeliest(law, 3) == [2, 4, 0]
    assert likeliest(law, 6) == [2, 4, 0, 3] and likeliest(law, 0) == []
