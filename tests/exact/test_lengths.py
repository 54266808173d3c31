"""Lengths that adapt leave the law alone: whole decode loops under every length rule, and
controllers that cheat are seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from draftproof.audit.cells import length_covering, prove_cell
from draftproof.audit.drafting import PlannedDrafter, PlannedSession
from draftproof.audit.exact import TOLERANCE, Case, Walk, harness, target_law, total_variation
from draftproof.audit.lengths import CONTROLLERS, length_harness
from draftproof.audit.table import PAIRS, PARAMETERS
from draftproof.drafters.protocol import Request


@pytest.mark.parametrize(
    "case", length_covering(), ids=lambda c: f"{c.length}-{c.draft}-{c.params}-{c.rule}-{c.pair}"
)
def test_law_and_length_are_exact(case):
    proof = prove_cell(case)
    assert proof.tv <= TOLERANCE, f"TV {proof.tv} over {proof.rounds} rounds"
    assert proof.length_error <= TOLERANCE, f"expected tokens off by {proof.length_error}"


@pytest.mark.parametrize("length", [name for name in CONTROLLERS if name != "fixed"])
def test_the_walk_meets_different_lengths(length):
    """A proof of a length that never changed would say nothing."""
    case = Case(
        "token",
        "sampled",
        "full_history",
        "plain",
        PARAMETERS["plain"],
        3,
        horizon=5,
        length=length,
    )
    made = length_harness(case)
    lengths = set()

    class Watched(Walk):
        def rounds(self, generation, known):
            for probability, after, left, choices in super().rounds(generation, known):
                lengths.add(
                    (after.length.reason, after.length.room(0) if after.length.choice else 0)
                )
                yield probability, after, left, choices

    walk = Watched(made)
    assert total_variation(walk.law(), target_law(made)) <= TOLERANCE
    assert len(lengths) > 1, lengths


class Cheating(PlannedDrafter):
    """A drafter around the builder: it draws aside, looks, and only then decides what to put before
    the verifier."""

    def __init__(self, name, plan, cheat):
        super().__init__(name, plan)
        self.cheat = cheat

    def open(self, request: Request):
        return CheatingSession(self.plan, self.cheat)


class CheatingSession(PlannedSession):
    def __init__(self, plan, cheat):
        super().__init__(plan)
        self._cheat = cheat

    def propose(self, context, draft):
        drawn = []
        for node in range(2 * draft.room):
            depth = node // 2
            path = tuple(token for token, _, _ in drawn[:depth])
            law = self._plan(tuple(context), path)
            token = int(draft._chance.draw_draft(law, node, depth))
            if node % 2 == 0:
                drawn.append((token, law, None))
            else:
                drawn[-1] = (drawn[-1][0], law, token)
        for token, law in self._cheat(drawn):
            draft._laws[draft.newest] = law
            draft._selection = "iid"
            draft._add(token, draft.newest)


def discard_unsure(drawn):
    """Stop before the first token that turned out unlikely."""
    for token, law, _ in drawn:
        if law[token] < 0.4:
            return
        yield token, law


def length_from_whole(drawn):
    """As many as the finished draft seems worth."""
    worth = np.mean([law[token] for token, law, _ in drawn]) > 0.4
    return [(token, law) for token, law, _ in drawn[: len(drawn) if worth else 1]]


def best_of_two(drawn):
    """Two drafters drafted; the likelier first token is put before the verifier."""
    token, law, other = drawn[0]
    return [(other if law[other] > law[token] else token, law)]


def nothing_wrong(drawn):
    return [(token, law) for token, law, _ in drawn]


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("cheat", [discard_unsure, length_from_whole, best_of_two])
def test_a_controller_that_looks_first_is_seen(cheat, rule):
    assert worst(cheat, rule) > 0.01


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_same_detour_without_looking_is_exact(rule):
    assert worst(nothing_wrong, rule) <= TOLERANCE


def worst(cheat, rule):
    """The largest TV over the pairs."""
    found = 0.0
    for pair in PAIRS:
        case = Case(rule, "sampled", pair, "plain", PARAMETERS["plain"], 2)
        made = harness(case)
        drafter = Cheating("cheating", made.kind.plan, cheat)
        made.generation.drafting = drafter.open(None)
        found = max(found, total_variation(Walk(replace(made)).law(), target_law(made)))
    return found
