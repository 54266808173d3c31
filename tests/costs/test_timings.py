"""Costs by an injected clock: passes in turns, drift between visits, the loop around the passes,
levels of a tree."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof import TableModel
from draftproof.core.tree import TreeShape
from draftproof.costs.outside_passes import Outside, fit_outside
from draftproof.costs.pass_timer import PassTimer, PassTimes, pass_lengths
from draftproof.costs.timings import Timings
from draftproof.plan.candidate import draft_passes
from draftproof.plan.predict import round_times
from draftproof.plan.rounds import trace_of_tree
from made_plans import TARGET, costs, plan_of


def test_passes_are_timed_in_turns_and_the_first_turn_is_left_out() -> None:
    now, calls = 0.0, 0

    def clock() -> float:
        nonlocal now, calls
        calls += 1
        now += 1.0 if calls % 2 == 0 else 0.0
        return now

    model = TableModel(TARGET)
    for batch in (1, 3):
        timer = PassTimer(
            model, (1, 2, 3), pass_lengths(5), TableModel(TARGET), batch=batch, clock=clock
        )
        visits = tuple(timer.visit(turns=3) for _ in range(2))
        timer.close()
        assert sorted(visits[0].target) == [1, 2, 3, 4, 5] and all(
            t == (1.0,) * 3 for t in visits[0].target.values()
        )
        found = Timings(visits)
        assert (
            {n: len(times) for n, times in visits[0].draft.items()} == {1: 9, 2: 6}
            and found.curve(5) == 1.0
            and found.spread() == found.drift() == 0
        )
        assert found.batch == batch and len(found.times[1]) == 6


def test_drift_is_what_visits_differ_by_and_widens_the_interval() -> None:
    """A machine on which drafts and long passes are 30% dearer or cheaper from one visit to the
    next."""
    assert costs(0.1, 0.1).drift() == pytest.approx(0, abs=1e-9) and costs(
        0.1, 0.1, noise=0.3
    ).drift() == pytest.approx(0.31, abs=0.02)
    steady, drifting = (
        plan_of(0.8, costs(0.1, 0.1, noise=noise), (4,)).choices[0].speedup for noise in (0.0, 0.2)
    )
    assert steady.high - steady.low < drifting.high - drifting.low


def test_a_batch_pays_for_its_loop_once_a_sequence() -> None:
    visit = PassTimes(10, {n: (1.0,) for n in range(1, 5)}, batch=4)
    found = Timings((visit,), Outside(0.2, 0.1, 0.1))
    assert found.plain == pytest.approx(1.4)
    assert round_times(found, 4).tolist() == pytest.approx([1.4, 2.2, 2.6, 3.0])


def test_the_cost_outside_forwards_is_a_line_that_does_not_fall() -> None:
    found = fit_outside([0.5], [(1, 1.0), (1, 1.0), (4, 2.5), (4, 2.5), (0, 9.0)])
    assert (found.fixed, found.each, found.plain) == pytest.approx((0.5, 0.5, 0.5))
    assert fit_outside([0.5], [(1, 2.0), (4, 1.0)]) == Outside(1.5, 0.0, 0.5)
    assert fit_outside([0.5], [(2, 0.7)]) == Outside(0.7, 0.0, 0.5)
    assert fit_outside([], []) == Outside(0.0, 0.0, 0.0)


def test_a_trees_rounds_cost_their_levels_and_their_nodes() -> None:
    shape = TreeShape.from_levels([2, 2])
    passes = draft_passes(shape, costs(0.1, 0.1))
    # the second pass reads two tokens
    assert passes[2] == pytest.approx(1.0) and passes[6] == pytest.approx(1.0 + 1.1)
    places = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    trace = trace_of_tree(lambda count: places[:, :count], np.ones(4), shape)
    assert trace.nodes is not None and trace.nodes.tolist() == [6, 6, 2, 0]
    assert trace.accept[0].tolist() == [1.0, 1.0] and trace.accept[1].tolist() == [1.0, 0.0]


def test_catching_up_costs_what_a_second_token_adds_to_a_draft_pass() -> None:
    visit = PassTimes(10, {1: (2.0,), 2: (2.4,)}, {1: (1.0,), 2: (1.25,)})
    assert Timings((visit,)).table.read == pytest.approx(0.125)
    untimed = PassTimes(10, {1: (2.0,), 2: (2.4,)}, {1: (1.0,)})
    assert Timings((untimed,)).table.read == pytest.approx(0.1)
    assert Timings((visit,), head_step=0.5).table.read == 0.0
