"""Numbers that should be uniform: they are, and the tests on them keep their level and see what
they say they see."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from draftproof.audit.uniformity import (
    anderson_darling,
    kolmogorov_distance,
    normal_p_value,
    randomised_pit,
)


def test_the_number_of_a_token_fills_its_own_share_of_the_interval():
    """Each token's numbers run through the mass before it to the mass after it, in the order of the
    key."""
    law, key = np.array([0.5, 0.2, 0.3]), np.array([0.0, 2.0, 1.0])
    assert [randomised_pit(law, token, 0.0) for token in range(3)] == pytest.approx([0.0, 0.5, 0.7])
    assert [randomised_pit(law, token, 1.0) for token in range(3)] == pytest.approx([0.5, 0.7, 1.0])
    assert [randomised_pit(law, token, 0.0, key) for token in range(3)] == pytest.approx(
        [0.5, 0.0, 0.2]
    )
    ties = np.ones(3)
    assert [randomised_pit(law, token, 0.0, ties) for token in range(3)] == pytest.approx(
        [0.0, 0.5, 0.7]
    )


@pytest.mark.parametrize("z", [0.5, 1.248, 1.933, 2.492, 3.857, 5.5, 6.9, 7.1, 12.0])
def test_p_values_are_those_of_the_limit_law(z):
    """The law of sum of chi-square(1) / (j (j + 1)), by simulation of a million draws; both errors
    below 1e-6."""
    from draftproof.audit.uniformity import _tail

    published = {1.248: 0.25, 1.933: 0.1, 2.492: 0.05, 3.857: 0.01}
    if z in published:
        assert _tail(z) == pytest.approx(published[z], rel=0.03)
    assert 0.0 < _tail(z) < _tail(z - 0.3)


def test_false_alarms_are_as_many_as_the_level_says():
    """4,000 samples of 60 at level 0.05: 200 expected, between 140 and 265 with probability 1 -
    1e-5."""
    rng = np.random.default_rng(1)
    alarms = sum(anderson_darling(rng.random(60))[1] <= 0.05 for _ in range(4000))
    low, high = stats.binom.ppf([5e-6, 1 - 5e-6], 4000, 0.05)
    assert low <= alarms <= high


def test_one_number_at_the_edge_is_evidence_but_not_all_of_it():
    rng = np.random.default_rng(2)
    numbers = [*rng.random(200), 1.0]
    assert anderson_darling(numbers, 1e-3)[1] > 1e-3
    assert anderson_darling([], 1e-3) == (0.0, 1.0)


def test_the_distance_is_scipys_and_its_interval_the_inequality():
    values = np.random.default_rng(3).random(80)
    distance, half = kolmogorov_distance(values)
    assert distance == pytest.approx(stats.kstest(values, "uniform").statistic)
    assert half == pytest.approx(np.sqrt(np.log(40) / 160))
    assert kolmogorov_distance([]) == (0.0, 1.0)
    assert normal_p_value(-1.959964) == pytest.approx(0.05, rel=1e-5)
