"""Rules for trees one round at a time: traversal against block and top-down, hand-made branches,
the lossy rule."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.audit.drafting import TREES
from draftproof.audit.exact import prove
from draftproof.audit.mutants import catch
from draftproof.audit.table import tree_case
from draftproof.audit.tree_mutants import MUTANTS
from draftproof.core.chance import KeyedChance, stream_key
from draftproof.core.enumerate import outcomes
from draftproof.core.records import ROOT, Draft
from draftproof.core.rules import LOSSLESS, RULES
from draftproof.core.rules.typical import is_typical
from draftproof.drafters.builder import DraftBuilder
from draftproof.errors import UsageError


class Rows:
    """One target law, whatever came before."""

    def __init__(self, law):
        self._law = law

    def row(self, node):
        return self._law

    def rows(self, nodes):
        return np.stack([self._law for _ in nodes])

    def draw(self, node, chance):
        return chance.draw_target(self._law, 0 if node == ROOT else 100 + node)


def expected_accepted(rule, target, law, shape, selection):
    """E[accepted drafts] of one round over a tree, both laws free of context."""

    def run(chance):
        builder = DraftBuilder(chance, depth=shape.depth, vocab_size=len(law), max_nodes=len(shape))
        placed = {ROOT: ROOT}
        for parent, children in shape.children.items():
            if parent in placed:
                nodes = builder.draw_children(law, len(children), selection, placed[parent])
                placed.update(zip(children, nodes, strict=False))
        return len(RULES[rule].verify(builder.build(), Rows(target), chance).path)

    return sum(outcome.probability * accepted for outcome, accepted in outcomes(run, 5))


@pytest.mark.parametrize("seed", range(8))
def test_traversal_is_block_on_a_chain_and_never_below_top_down_on_trees(seed):
    rng = np.random.default_rng(seed)
    target, law = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3))
    chain = TREES["chain"]
    block = expected_accepted("block", target, law, chain, "iid")
    assert expected_accepted("traversal", target, law, chain, "iid") == pytest.approx(
        block, abs=1e-12
    )
    for selection in ("iid", "without_replacement"):
        top_down = expected_accepted("rrs", target, law, TREES["[2,1]"], selection)
        assert (
            expected_accepted("traversal", target, law, TREES["[2,1]"], selection)
            >= top_down - 1e-12
        )


def test_traversal_on_blocks_toy():
    target, law = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
    from draftproof.core.tree import TreeShape

    assert expected_accepted("traversal", target, law, TreeShape.chain(2), "iid") == pytest.approx(
        11 / 9, abs=1e-12
    )
    assert expected_accepted("rrs", target, law, TreeShape.chain(2), "iid") == pytest.approx(
        10 / 9, abs=1e-12
    )


def test_hsd_on_its_own_toy_reaches_what_no_exact_rule_can():
    """2601.05724's published code: 12/9 where the optimum is 11/9, and P(1, 0) = 1/3 instead of
    2/9."""
    hsd = next(m for m in MUTANTS if "HSD" in m.seen_in)
    target, law = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
    firsts, accepted = {}, 0.0

    def run(chance):
        builder = DraftBuilder(chance, depth=2, vocab_size=2)
        builder.draw(law)
        builder.draw(law)
        draft = builder.build()
        verdict = hsd.verify(draft, Rows(target), chance)
        return (*(draft.tokens[n] for n in verdict.path), verdict.token)

    for outcome, tokens in outcomes(run, 5):
        accepted += outcome.probability * (len(tokens) - 1)
        for second in range(2) if len(tokens) == 1 else (tokens[1],):
            mass = outcome.probability * (target[second] if len(tokens) == 1 else 1.0)
            firsts[tokens[0], second] = firsts.get((tokens[0], second), 0.0) + mass
    assert accepted == pytest.approx(12 / 9, abs=1e-12)
    assert firsts[1, 0] == pytest.approx(1 / 3, abs=1e-12)
    tv = 0.5 * sum(
        abs(firsts.get((a, b), 0.0) - target[a] * target[b]) for a in range(2) for b in range(2)
    )
    assert tv == pytest.approx(1 / 9, abs=1e-12)
    assert catch(hsd).tv > 0.05


@pytest.mark.parametrize("rule", ["rrs", "traversal", "k_seq", "greedy_k"])
def test_a_right_second_sibling_is_found(rule):
    """The target knows only token 2; it hangs second under the root and first under that."""
    law = np.array([0.25, 0.25, 0.5])
    selection = {"k_seq": "iid", "greedy_k": "top_k_plus_one"}.get(rule, "without_replacement")
    tree = Draft((0, 2, 2, 1), (-1, -1, 1, 1), {ROOT: law, 1: law}, selection)
    if rule == "greedy_k":
        tree = Draft((2, 0, 2, 1), (-1, -1, 0, 0), {ROOT: law, 0: law}, selection)
    verdict = RULES[rule].verify(
        tree, Rows(np.array([0.0, 0.0, 1.0])), KeyedChance(stream_key(0, 0), 4)
    )
    assert tree.tokens_to(verdict.path[-1]) == (2, 2)
    assert verdict.token == 2


def test_the_draft_law_may_run_out_of_tokens():
    chance = KeyedChance(stream_key(0, 0), 4)
    law = np.array([0.0, 0.7, 0.3, 0.0])
    for selection in ("without_replacement", "top_k_plus_one"):
        builder = DraftBuilder(chance, depth=1, vocab_size=4, max_nodes=4)
        nodes = builder.draw_children(law, 4, selection)
        assert len(nodes) == 2
        assert sorted(builder.build().tokens) == [1, 2]


def test_children_are_drawn_at_once_and_nothing_can_be_taken_back():
    """Discarding after a look, choosing the length from the whole draft and the best of two need
    what is not there."""
    law = np.full(4, 0.25)
    builder = DraftBuilder(KeyedChance(stream_key(0, 0), 4), depth=2, vocab_size=4, max_nodes=6)
    builder.draw_children(law, 2, "without_replacement")
    with pytest.raises(UsageError, match="once"):
        builder.draw_children(law, 1, "without_replacement", ROOT)
    with pytest.raises(UsageError, match="either drawn or guessed"):
        builder.draw_children(law, 1, "iid", 0)
    draft = builder.build()
    with pytest.raises(AttributeError):
        draft.tokens = draft.tokens[:1]
    public = {name for name in dir(builder) if not name.startswith("_")}
    assert public == {
        *(
            "beside",
            "build",
            "draw",
            "draw_children",
            "ends_text",
            "go_on",
            "guess",
            "invalid_law",
            "newest",
            "nodes_to",
        ),
        *(
            "note",
            "notes",
            "num_invalid_laws",
            "num_nodes",
            "parent",
            "path",
            "read_beside",
            "room",
            "room_under",
            "token",
            "weighs_laws",
        ),
    }


@pytest.mark.parametrize(
    "name",
    [
        "discard an unsure draft after looking",
        "length chosen from the whole draft",
        "best of two drafts",
    ],
)
def test_going_round_the_builder_is_biased(name):
    assert catch(next(m for m in MUTANTS if m.name == name)).tv > 0.01


def test_typical_is_lossy_and_says_so():
    assert RULES["typical"].name == "typical (lossy)"
    assert not RULES["typical"].lossless
    assert "typical" not in LOSSLESS
    flat, peaked = np.full(100, 0.01), np.array([0.96, 0.04])
    assert is_typical(flat, 3), "0.01 > 0.3 exp(-log 100)"
    assert not is_typical(peaked, 1), "0.04 < min(0.09, 0.3 exp(-0.17))"
    tree = Draft((1, 0, 0, 1), (-1, -1, 1, 2))
    verdict = RULES["typical"].verify(tree, Rows(peaked), KeyedChance(stream_key(0, 0), 4))
    assert verdict.path == (1, 2)


def test_typical_keeps_the_earliest_of_equally_long_paths():
    flat = np.full(4, 0.25)
    verdict = RULES["typical"].verify(
        Draft((0, 1, 2, 3), (-1, -1, 0, 1)), Rows(flat), KeyedChance(stream_key(0, 0), 4)
    )
    assert verdict.path == (0, 2)


def test_every_pair_of_a_slice_is_exact_at_length_one_more():
    """The horizon of a tree's proof reaches one token past its deepest node, so that the bonus is
    in it."""
    case = tree_case(("traversal", "without_replacement"), "plain", "lopsided", "overrated")
    assert case.horizon == TREES["lopsided"].depth + 1
    assert prove(case).holds
