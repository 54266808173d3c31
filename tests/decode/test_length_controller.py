"""The controller of lengths asked alone: room, what a ledger lets pass, and what a drafter is
thought to have read."""

from __future__ import annotations

import pytest

from draftproof.core.records import Round
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.length import LengthController, Member, Situation
from draftproof.decode.lengths import LENGTHS

COSTS = RoundCosts(verify=((1, 1.0), (9, 1.4)), draft=0.1)


def member():
    return Member("draft_model", LENGTHS["fixed"].make(COSTS), COSTS, auto_off=False)


def test_room_ends_with_the_planned_draft():
    controller = LengthController([member()])
    planned = controller.begin(Situation(length=10, longest=3, remaining=9))
    assert planned == 3
    assert [controller.room(depth) for depth in range(5)] == [3, 2, 1, 0, 0]


class Affords:
    """A ledger that lets rounds up to a cost pass."""

    def __init__(self, most):
        self.most = most

    def affords(self, cost):
        return cost <= self.most


@pytest.mark.parametrize("affordable", [0, 1, 2, 3])
def test_as_many_drafts_as_the_ledger_affords(affordable):
    one = member()
    most = COSTS.round(affordable, affordable, 1) if affordable else 0.0
    now = Situation(length=1, longest=3, remaining=9)
    assert one._affordable(3, now, Affords(most + 1e-9)) == affordable


@pytest.mark.parametrize("accepted, read", [(0, 10), (1, 11), (2, 12), (3, 12)])
def test_a_draft_model_has_read_the_accepted_drafts_but_its_last(accepted, read):
    one, tokens = member(), (1, 2, 3)
    emitted = (*tokens[:accepted], 7)
    origins = (*["draft"] * accepted, "bonus" if accepted == 3 else "replacement")
    record = Round(10, tokens, (-1, 0, 1), emitted, origins, accepted, min(accepted + 1, 3))
    one.observe(record, 1.0, 5)
    assert one.read == read
