"""Bets against an exact engine: their expectation, and faults that begin late."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from draftproof.core.faults import ACCEPTS_ALL, NO_RESIDUAL, REUSED_NOISE, faulty_laws
from draftproof.core.wealth import RENEWAL, LastingWealth, Wealth, ratio

TARGET, DRAFT = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])


@pytest.mark.parametrize("kind", [Wealth, LastingWealth])
def test_the_expected_wealth_under_the_target_is_at_most_one(kind, monkeypatch):
    """Summed over every text of four tokens, with renewals in between."""
    monkeypatch.setattr("draftproof.core.wealth.RENEWAL", 2)
    expected = 0.0
    for tokens in itertools.product(range(3), repeat=4):
        wealth = kind()
        for token in tokens:
            wealth.see(
                (cause, ratio(law, TARGET, token))
                for cause, law in faulty_laws(TARGET, DRAFT, TARGET[::-1])
            )
        expected += math.exp(wealth.log_e) * math.prod(TARGET[list(tokens)])
    assert 1 - 1e-4 < expected <= 1 + 1e-12


def test_a_ratio_is_capped_and_an_impossible_token_is_not_infinite():
    assert ratio(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 1) == 20.0
    assert sum(TARGET[x] * ratio(DRAFT, TARGET, x) for x in range(3)) <= 1.0


@pytest.mark.parametrize(
    ("draft", "target"), [(DRAFT, TARGET), (np.array([1.0, 0, 0]), TARGET), (TARGET, TARGET)]
)
def test_every_faulty_law_is_a_law(draft, target):
    for cause, law in faulty_laws(target, draft, draft):
        assert law.min() >= 0 and law.sum() == pytest.approx(1.0, abs=1e-12), cause


def test_the_law_without_a_residual_and_with_reused_noise_are_those_of_the_rules():
    laws = dict(faulty_laws(TARGET, DRAFT))
    kept = np.minimum(TARGET, DRAFT)
    assert laws[NO_RESIDUAL] == pytest.approx(kept + (1 - kept.sum()) * TARGET)
    assert laws[ACCEPTS_ALL] == pytest.approx(DRAFT)
    # 400,000 draws: a standard error of 0.0008 at most, five of them allowed
    rng = np.random.default_rng(0)
    target, draft = np.array([0.35, 0.3, 0.2, 0.1, 0.05]), np.array([0.05, 0.25, 0.1, 0.2, 0.4])
    clocks = rng.exponential(size=(400_000, 5))
    drafted = (clocks / draft).argmin(axis=1)
    passes = rng.random(400_000) * draft[drafted] < target[drafted]
    rest = np.maximum(target - draft, 1e-300)
    emitted = np.where(passes, drafted, (clocks / rest).argmin(axis=1))
    law = dict(faulty_laws(target, draft))[REUSED_NOISE]
    assert np.bincount(emitted, minlength=5) / 400_000 == pytest.approx(law, abs=0.004)
    assert abs(law - target).max() > 0.008


def test_a_fault_that_begins_late_is_seen_though_bets_had_lost_for_long():
    """20 renewals of exact tokens, then accept-all: the loss of the first bets is hundreds of
    nats."""
    rng, lasting, plain = np.random.default_rng(1), LastingWealth(), Wealth()
    for n in range(21 * RENEWAL):
        token = int(rng.choice(3, p=TARGET if n < 20 * RENEWAL else DRAFT))
        for wealth in (lasting, plain):
            wealth.see([("fault", ratio(DRAFT, TARGET, token))])
    assert lasting.log_e > 50 > 0 > plain.log_e
