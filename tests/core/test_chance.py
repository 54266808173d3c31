"""Keyed chance: the published generator, the same bits everywhere, keys that do not meet, strict comparisons."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from draftproof.core.chance import KeyedChance, Purpose, stream_key, threefry2x32, unit_interval


@pytest.mark.parametrize(
    "counter, key, expected",
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_words(counter, key, expected):
    """Known-answer vectors of Random123 for threefry2x32 with 20 rounds."""
    assert threefry2x32(key, counter) == expected


def test_unit_interval_is_half_open():
    assert unit_interval((0, 0)) == 0.0
    assert unit_interval((0xFFFFFFFF, 0xFFFFFFFF)) == 1 - 2**-53


def test_no_two_purposes_rounds_or_nodes_share_a_number():
    key = stream_key(1, 0)
    seen = {}
    for start, purpose, node in product(range(40), list(Purpose)[1:], range(40)):
        value = KeyedChance(key, start).uniform(purpose, node)
        assert seen.setdefault(value, (start, purpose, node)) == (start, purpose, node)
    for position in range(80):
        assert seen.setdefault(KeyedChance(key, position).uniform(Purpose.TARGET, 0), "target") == "target"


def test_target_draws_depend_on_the_position_alone():
    key = stream_key(9, 3)
    assert KeyedChance(key, 10).uniform(Purpose.TARGET, 4) == KeyedChance(key, 14).uniform(Purpose.TARGET, 0)
    assert KeyedChance(key, 10).uniform(Purpose.DRAFT, 4) != KeyedChance(key, 14).uniform(Purpose.DRAFT, 0)


@pytest.mark.parametrize("seed, sample", [(0, 1), (1, 0), (2**63 - 1, 0), (0, 2**31)])
def test_streams_differ(seed, sample):
    assert stream_key(seed, sample) != stream_key(0, 0)


def test_numpy_and_torch_decide_alike():
    rng = np.random.default_rng(0)
    for start in range(200):
        chance = KeyedChance(stream_key(4, 0), start)
        trials = rng.random(5)
        law = rng.dirichlet(np.ones(7))
        for array in (trials, torch.from_numpy(trials)):
            assert int(chance.first_failure(array, Purpose.ACCEPT)) == int(chance.first_failure(trials, Purpose.ACCEPT))
            assert int(chance.last_success(array, Purpose.ACCEPT)) == int(chance.last_success(trials, Purpose.ACCEPT))
        assert int(chance.draw(torch.from_numpy(law), Purpose.DRAFT, 0)) == int(chance.draw(law, Purpose.DRAFT, 0))


def test_vector_forms_match_one_by_one():
    for start in range(300):
        chance = KeyedChance(stream_key(5, 0), start)
        trials = np.array([0.3, 0.9, 0.0, 1.0, 0.5])
        outcomes = [chance.bernoulli(p, Purpose.ACCEPT, i) for i, p in enumerate(trials)]
        assert int(chance.first_failure(trials, Purpose.ACCEPT)) == outcomes.index(False)
        assert int(chance.last_success(trials, Purpose.ACCEPT)) == max(i + 1 for i, hit in enumerate(outcomes) if hit)


def test_zero_never_succeeds_and_one_always_does(monkeypatch):
    for extreme in (0.0, 1 - 2**-53):
        monkeypatch.setattr(KeyedChance, "uniform", lambda self, purpose, node, value=extreme: value)
        chance = KeyedChance((0, 0), 0)
        assert not chance.bernoulli(0.0, Purpose.ACCEPT, 0)
        assert chance.bernoulli(1.0, Purpose.ACCEPT, 0)
        assert int(chance.first_failure(np.array([1.0, 0.0]), Purpose.ACCEPT)) == 1
        assert int(chance.last_success(np.array([1.0, 0.0]), Purpose.ACCEPT)) == 1
