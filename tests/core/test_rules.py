"""The rules one round at a time: published numbers, optimality, degenerate laws. Their exactness is
proven in tests/exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof.core.chance import KeyedChance, stream_key
from draftproof.core.enumerate import outcomes
from draftproof.core.records import ROOT, Draft
from draftproof.core.rules import RULES, rule_by_name
from draftproof.drafters.builder import DraftBuilder
from draftproof.errors import UsageError


class Rows:
    """Target laws given as an array [n + 1, vocab]."""

    def __init__(self, rows):
        self._rows = rows

    def row(self, node):
        return self._rows[node + 1]

    def rows(self, nodes):
        return self._rows[[node + 1 for node in nodes]]

    def draw(self, node, chance):
        return chance.draw_target(self.row(node), node + 1)


def expected_accepted(rule, target, draft, length):
    """E[accepted drafts] of one round when both laws ignore the context."""

    def run(chance):
        builder = DraftBuilder(chance, depth=length, vocab_size=len(draft))
        while builder.go_on(draft):
            builder.draw(draft)
        return len(
            RULES[rule].verify(builder.build(), Rows(np.tile(target, (length + 1, 1))), chance).path
        )

    return sum(outcome.probability * accepted for outcome, accepted in outcomes(run, 5))


def test_block_on_its_papers_toy():
    """2403.10444: p = (1/3, 2/3), q = (2/3, 1/3), two drafts: 10/9 by token, 11/9 by block."""
    target, draft = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
    assert expected_accepted("token", target, draft, 2) == pytest.approx(10 / 9, abs=1e-12)
    assert expected_accepted("block", target, draft, 2) == pytest.approx(11 / 9, abs=1e-12)
    assert expected_accepted("match", target, draft, 2) == pytest.approx(
        4 / 9 + (4 / 9) ** 2, abs=1e-12
    )


@pytest.mark.parametrize("seed", range(30))
def test_block_accepts_no_less_than_token_and_token_no_less_than_match(seed):
    rng = np.random.default_rng(seed)
    target, draft = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3))
    match, token, block = (
        expected_accepted(rule, target, draft, 3) for rule in ("match", "token", "block")
    )
    assert match <= token + 1e-12 <= block + 2e-12
    overlap = float(np.minimum(target, draft).sum())
    assert token == pytest.approx(sum(overlap**i for i in (1, 2, 3)), abs=1e-12)


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("selection", ["iid", "fixed"])
def test_a_forbidden_draft_is_never_accepted_and_never_replaced_by_itself(
    rule, selection, monkeypatch
):
    """Even with a uniform of exactly 0: the comparison is strict."""
    monkeypatch.setattr(KeyedChance, "uniform", lambda self, purpose, node: 0.0)
    target = np.array([[0.0, 0.4, 0.6], [0.2, 0.3, 0.5]])
    laws = {ROOT: np.array([0.9, 0.05, 0.05])} if selection == "iid" else {}
    verdict = RULES[rule].verify(
        Draft((0,), (-1,), laws, selection), Rows(target), KeyedChance((0, 0), 3)
    )
    assert verdict.path == ()
    assert verdict.token == 1


@pytest.mark.parametrize("rule", ["token", "block"])
def test_equal_float32_laws_over_a_large_vocabulary_never_reject(rule):
    """Masses cancel to about 1e-8 there; a rejection would have to draw from next to nothing."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.softmax(torch.randn(5, 32_000, generator=generator), -1)
    for seed in range(50):
        chance = KeyedChance(stream_key(seed, 0), 9)
        builder = DraftBuilder(chance, depth=4, vocab_size=32_000)
        for i in range(4):
            builder.draw(rows[i])
        verdict = RULES[rule].verify(builder.build(), Rows(rows), chance)
        assert verdict.path == (0, 1, 2, 3)
        assert 0 <= verdict.token < 32_000


@pytest.mark.parametrize("rule", sorted(RULES))
def test_numpy_and_torch_give_one_verdict(rule):
    rng = np.random.default_rng(3)
    for start in range(100):
        rows, laws = rng.dirichlet(np.ones(6), 4), rng.dirichlet(np.ones(6), 3)
        chance = KeyedChance(stream_key(1, 0), start)
        tokens = tuple(int(chance.draw(law, 1, i)) for i, law in enumerate(laws))
        verdicts = [
            RULES[rule].verify(
                Draft(tokens, (-1, 0, 1), {i - 1: q[i] for i in range(3)}, "iid"), Rows(p), chance
            )
            for p, q in ((rows, laws), (torch.from_numpy(rows), torch.from_numpy(laws)))
        ]
        assert verdicts[0] == verdicts[1]


def test_origin_tells_bonus_replacement_and_plain_apart():
    chain = Draft((4, 5), (-1, 0))
    verify = RULES["match"].verify
    certain = np.eye(8)
    for tokens, path, origin in (
        ((4, 5, 6), (0, 1), "bonus"),
        ((4, 7, 0), (0,), "replacement"),
        ((1, 0, 0), (), "replacement"),
    ):
        verdict = verify(chain, Rows(certain[list(tokens)]), KeyedChance((0, 0), 0))
        assert (verdict.path, verdict.origin(chain)) == (path, origin)
    assert verify(Draft(), Rows(certain[[3]]), KeyedChance((0, 0), 0)).origin(Draft()) == "plain"


def test_match_descends_a_tree():
    tree = Draft((1, 2, 3, 4, 5), (-1, -1, 1, 1, 0))
    rows = np.eye(8)[[2, 0, 4, 0, 6, 0]]
    verdict = RULES["match"].verify(tree, Rows(rows), KeyedChance((0, 0), 0))
    assert verdict.path == (1, 3)
    assert verdict.token == 6


def test_unknown_rules_are_named():
    with pytest.raises(UsageError, match="allowed: block, "):
        rule_by_name("tokne")
