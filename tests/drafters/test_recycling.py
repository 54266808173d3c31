"""Token Recycling: the table is what the target last said, the tree hangs it under itself, and the
law stays the target's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.exact import (
    PROMPT,
    TOLERANCE,
    Case,
    Walk,
    harness,
    target_law,
    total_variation,
)
from draftproof.audit.table import PARAMETERS
from draftproof.audit.toys import pairs
from draftproof.core.tree import TreeShape
from draftproof.drafters.protocol import Request
from draftproof.drafters.recycling import RANKS, Recycling, likely_shape

SHAPE = TreeShape((-1, -1, 0, 0))


def test_the_table_keeps_every_rows_latest_list_rejected_drafts_included():
    size = 6
    law = [
        [0.5 if j == (i + 1) % size else 0.3 if j == (i + 2) % size else 0.05 for j in range(size)]
        for i in range(size)
    ]
    made = SpeculativeDecoder(Recycling(tree=TreeShape.from_levels((2, 2))), TableModel(law))
    rounds = made.generate([0], SamplingParams(temperature=0, max_tokens=9)).rounds
    assert [r.draft_tokens for r in rounds[:2]] == [(), ()], (
        "nothing is known about a token before it was read"
    )
    known: set[int] = set()
    for record, pending in zip(rounds, [0, *(r.tokens[-1] for r in rounds)], strict=False):
        if record.draft_tokens:
            assert pending in known
        known |= {pending, *record.draft_tokens}
    first = next(r for r in rounds if r.draft_tokens)
    pending = rounds[rounds.index(first) - 1].tokens[-1]
    assert first.draft_tokens[:2] == ((pending + 1) % size, (pending + 2) % size)


def test_the_likeliest_places_come_first_and_hang_together():
    shape = likely_shape(24, 6)
    assert len(shape) == 24 and shape.depth <= 6
    assert (
        len(shape.children[-1]) > len(shape.children.get(0, ())) >= len(shape.children.get(1, ()))
    ), "early ranks have room"
    assert likely_shape(3, 1).parents == (-1, -1, -1)
    assert likely_shape(1, 6).parents == (-1,)
    assert all(a > b for a, b in zip(RANKS, RANKS[1:], strict=False))


def test_without_trees_the_chain_of_first_ranks_is_drafted():
    drafter = Recycling(depth=5, trees=False)
    assert (drafter.trees, len(drafter.tree), drafter.wants.top_ids) == (False, 5, 1)


class CheckedWalk(Walk):
    """The proof's walk, with a round's expected tokens told from the table the session holds when
    the round begins."""

    def _check_length(self, generation, length, total):
        depth = min(generation.num_speculative_tokens, generation.stopper.remaining - 1)
        context = tuple(generation.context)
        paths = drafted_paths(generation.drafting._table, context, depth, self.made.laws)
        ends = self.made.ends
        expected = 1.0 + sum(
            float(
                np.prod(
                    [self.made.target_row(context, path[:i])[token] for i, token in enumerate(path)]
                )
            )
            for path in paths
            if not ends.intersection(path)
        )
        self.length_error = max(self.length_error, abs(length - expected), abs(total - 1.0))
        self.drafted = getattr(self, "drafted", 0) + len(paths)


def drafted_paths(table, context, depth, laws):
    """Every path of SHAPE: the n-th child of a place is the n-th allowed entry of its token's
    list."""
    paths, of = [], {-1: ()}
    for parent, children in SHAPE.children.items():
        if parent not in of or len(of[parent]) >= depth:
            continue
        path = of[parent]
        listed = [
            t for t in table.get((*context, *path)[-1], ()) if not laws.forbids(t, context, path)
        ]
        for child, token in zip(children, listed, strict=False):
            of[child] = (*path, token)
            paths.append(of[child])
    return paths


@pytest.mark.parametrize("rule", ["match", "rrs", "traversal"])
@pytest.mark.parametrize(
    "params",
    ["plain", "temperature 2", "top_k", "suppress_tokens", "eos", "all at once", "max_tokens"],
)
@pytest.mark.parametrize("pair", ["full_history", "zeros"])
def test_law_and_length_are_exact_while_the_table_changes(rule, params, pair):
    """The whole loop: what is drafted depends on the rows of earlier rounds, and still the law is
    the target's."""
    made = harness(Case(rule, "ngram", pair, params, PARAMETERS[params], 2))
    drafter = Recycling(tree=SHAPE)
    made.generation.drafting.close()
    made.generation.drafting = drafter.open(
        Request(PROMPT, PARAMETERS[params], made.laws, pairs()[pair].target)
    )
    made.generation.wants, made.generation.max_nodes = drafter.wants, len(SHAPE)
    walk = CheckedWalk(replace(made, horizon=3))
    law = walk.law()
    assert total_variation(law, target_law(walk.made)) <= TOLERANCE
    assert walk.length_error <= TOLERANCE
    assert walk.drafted > 0
