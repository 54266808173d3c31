"""The speedup a look foretells: acceptance on timed passes, with a clock that is made."""

from __future__ import annotations

import itertools

import pytest

from draftproof.costs.round_costs import RoundCosts
from draftproof.heads.target import target_view
from draftproof.train.head_costs import time_head
from draftproof.train.run import Recipe, fresh_head
from toy_language import SIZE, speaker, texts

VERIFY = ((1, 1.0), (2, 1.1), (3, 1.2), (4, 2.0))


def test_the_best_length_by_hand():
    costs = RoundCosts(VERIFY, draft=0.1)
    assert costs.best((0.6, 0.3, 0.2)) == (2, pytest.approx(1.9 / 1.4))
    assert costs.best((0.1, 0.0, 0.0)) == (0, 1.0)
    together = RoundCosts(VERIFY, fixed=0.1)
    assert together.best((0.6, 0.3, 0.2)) == (2, pytest.approx(1.9 / 1.3))


@pytest.mark.parametrize("method", ["medusa", "eagle", "eagle3"])
def test_every_head_is_timed(method):
    target = speaker()
    head = fresh_head(
        Recipe(method, draft_vocab_size=SIZE, num_heads=3), target_view(target), texts(), 0
    )
    ticks = itertools.count()
    costs = time_head(target, head, texts()[0], 3, clock=lambda: float(next(ticks)))
    assert costs.verify == tuple((n, 1.0) for n in range(1, 5)), "every pass takes one tick"
    assert (costs.draft, costs.fixed) == ((0.0, 1.0) if method == "medusa" else (1.0, 0.0))
