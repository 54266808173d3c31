"""Exact and sampled laws of rounds, and the published table of wrong implementations."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.core.chance import Purpose
from draftproof.core.formulas import acceptance_rate
from draftproof.core.step import round_tokens
from draftproof.experiments.bugs import PUBLISHED, PUBLISHED_NOISE
from draftproof.experiments.exact import (
    QuickChance,
    empirical_law,
    exact_law,
    exact_round_length,
    mean_noise_tv,
    noise_tv,
    sampled_tokens,
    tv,
)
from draftproof.experiments.rounds import ROUNDS
from draftproof.experiments.toy import (
    DRAFT_CHAIN,
    PREFIX,
    TARGET_CHAIN,
    chain_draft,
    chain_law,
    chain_target,
    pair_draft,
    pair_target,
)

EXACT = {
    "correct": 0.0,
    "no bonus token": 0.0,
    "resample from the target, not the residual": 0.1664,
    "keep verifying after a rejection": 0.18,
    "ratio inverted": 0.52,
    "argmax check while sampling": 0.64,
    "no verification": 0.52,
    "target off by one position": 0.61,
}
TOKENS_PER_ROUND = {
    "correct": 3.3616,
    "no bonus token": 2.952,
    "keep verifying after a rejection": 5.0,
    "no verification": 4.0,
}


def exact_tv(name: str) -> float:
    return tv(exact_law(ROUNDS[name], chain_target, chain_draft, PREFIX, 2, 2), chain_law())


def test_the_chain_has_the_overlaps_of_the_lab() -> None:
    assert acceptance_rate(TARGET_CHAIN, DRAFT_CHAIN) == pytest.approx([0.6, 0.5, 0.5])


@pytest.mark.parametrize("name", ROUNDS)
def test_exact_distances_of_wrong_implementations(name: str) -> None:
    assert exact_tv(name) == pytest.approx(EXACT[name], abs=1e-12)


@pytest.mark.parametrize("name", ROUNDS)
def test_the_published_table_is_ours_within_its_noise(name: str) -> None:
    """Published distances are single runs of 30,000, printed to two or three digits; noise at that
    size is at most 0.013 for an exact sampler, and a biased one's distance wobbles by about
    0.003."""
    assert abs(PUBLISHED[name] - exact_tv(name)) <= (0.013 if EXACT[name] == 0 else 0.006)


def test_the_noise_floor() -> None:
    """2,000 times 30,000 runs: mean 0.0056, 99th percentile 0.010, maximum 0.013. The mean of 2,000
    has a standard error of 0.00004; the percentile's is about 0.0001; the maximum's spread is about
    0.0008."""
    floor = noise_tv(chain_law(), 30_000, 2000, np.random.default_rng(0))
    assert floor.mean() == pytest.approx(PUBLISHED_NOISE["mean"], abs=0.0002)
    assert np.quantile(floor, 0.99) == pytest.approx(PUBLISHED_NOISE["percentile_99"], abs=0.0006)
    assert floor.max() == pytest.approx(PUBLISHED_NOISE["maximum"], abs=0.003)
    assert floor.mean() == pytest.approx(mean_noise_tv(chain_law(), 30_000), rel=0.03)


@pytest.mark.parametrize("name", TOKENS_PER_ROUND)
def test_round_lengths_on_the_independent_pair(name: str) -> None:
    assert exact_round_length(ROUNDS[name], pair_target, pair_draft, (), 4) == pytest.approx(
        TOKENS_PER_ROUND[name]
    )


def test_the_plain_round_and_the_library_rule_have_one_law() -> None:
    plain, library = (
        exact_law(play, chain_target, chain_draft, PREFIX, 3, 3)
        for play in (ROUNDS["correct"], round_tokens)
    )
    assert np.abs(plain - library).max() < 1e-15


def test_sampled_frequencies_approach_the_exact_law() -> None:
    """20,000 runs of a biased round: the noise about its own law is 0.007 on average; 0.02 is
    beyond any of 100,000 samples."""
    play = ROUNDS["keep verifying after a rejection"]
    tokens = sampled_tokens(
        play, chain_target, chain_draft, PREFIX, 2, 2, 20_000, np.random.default_rng(1)
    )
    assert tokens.shape == (20_000, 2)
    assert (
        tv(empirical_law(tokens, 3), exact_law(play, chain_target, chain_draft, PREFIX, 2, 2))
        < 0.02
    )


def test_quick_chance_keeps_the_promises_of_chance() -> None:
    chance = QuickChance(np.random.default_rng(0))
    assert {chance.draw(np.array([0.0, 2.0, 0.0]), Purpose.DRAFT, 0) for _ in range(50)} == {1}
    assert not any(chance.bernoulli(0.0, Purpose.ACCEPT, 0) for _ in range(50))
    assert all(chance.bernoulli(1.0, Purpose.ACCEPT, 0) for _ in range(50))
    assert chance.draw_target(np.array([0.0, 1.0]), 0) == 1
    assert (
        chance.first_failure(np.ones(2), Purpose.ACCEPT) == 2
        and chance.first_failure(np.zeros(2), Purpose.ACCEPT) == 0
    )
    assert chance.last_success(np.array([1.0, 0.0]), Purpose.ACCEPT) == 1
    draws = [chance.draw(np.array([0.25, 0.75]), Purpose.DRAFT, 0) for _ in range(20_000)]
    assert np.mean(draws) == pytest.approx(0.75, abs=0.02)  # 6 standard errors
