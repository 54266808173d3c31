"""The simulation of lengths gives the figures that are known of it."""

from __future__ import annotations

import pytest

from draftproof.experiments.adaptive_length import PRICES, PROCESS
from draftproof.simulate.lengths import decoding_speedup, speedup, survival_speedup

STREAMS = 3000
"""Fixed beforehand. At 120 tokens a stream the speedups' standard error is below 0.004, a fifth of
a percent."""


@pytest.fixture(scope="module")
def text():
    return PROCESS.draw(STREAMS, 120, seed=1)


def test_best_fixed_length_and_survival_rule_within_two_percent(text):
    fixed = [speedup(*text, "fixed", k, PRICES) for k in range(9)]
    assert fixed.index(max(fixed)) == 3
    assert max(fixed) == pytest.approx(1.705, rel=0.02)
    assert survival_speedup(*text, PRICES) == pytest.approx(1.930, rel=0.02)


def test_a_threshold_a_quarter_off_costs_less_than_a_percent(text):
    best = survival_speedup(*text, PRICES)
    for error in (0.75, 1.25):
        assert speedup(*text, "survival", error * best, PRICES) > 0.99 * best


def test_the_product_beats_a_cut_at_each_draft(text):
    cuts = [speedup(*text, "cut", cut / 20, PRICES) for cut in range(1, 19)]
    assert max(cuts) < survival_speedup(*text, PRICES)


def test_the_rule_that_decodes_beats_the_best_fixed_length(text):
    chances, accepted = text
    fixed = max(speedup(*text, "fixed", k, PRICES) for k in range(9))
    assert decoding_speedup(chances[:30], accepted[:30], PRICES) > fixed
