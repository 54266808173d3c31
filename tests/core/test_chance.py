"""Keyed chance: the published generator, the same bits everywhere, keys that do not meet, strict
comparisons."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from draftproof.core.chance import (
    KeyedChance,
    Purpose,
    copy_seed,
    stream_key,
    threefry2x32,
    unit_interval,
)
from draftproof.core.coupled import noise_uniforms


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
        assert (
            seen.setdefault(KeyedChance(key, position).uniform(Purpose.TARGET, 0), "target")
            == "target"
        )


def test_target_draws_depend_on_the_position_alone():
    key = stream_key(9, 3)
    assert KeyedChance(key, 10).uniform(Purpose.TARGET, 4) == KeyedChance(key, 14).uniform(
        Purpose.TARGET, 0
    )
    assert KeyedChance(key, 10).uniform(Purpose.DRAFT, 4) != KeyedChance(key, 14).uniform(
        Purpose.DRAFT, 0
    )


def every_bit_counts(key, bits):
    """Whether each of the `bits` lowest bits of the one argument of `key` changes it, and no two
    changes agree."""
    return len({key(0), *(key(1 << bit) for bit in range(bits))}) == bits + 1


def kept(bits):
    """The fault of a field that is cut to its lowest `bits` bits."""
    return (1 << bits) - 1


STREAM_FIELDS = {
    "seed": lambda value: stream_key(value),
    "sample": lambda value: stream_key(0, value),
    "opening": lambda value: stream_key(0, opening=value),
    "first id of the prompt": lambda value: stream_key(0, prompt=(value, 5)),
    "last id of the prompt": lambda value: stream_key(0, prompt=(*range(5000), value)),
    "copy": lambda value: copy_seed(3, value),
    "seed of a copy": lambda value: copy_seed(value, 3),
}
ROUND_FIELDS = {
    "position of a target draw": (
        32,
        lambda value: KeyedChance((1, 2), value).uniform(Purpose.TARGET, 0),
    ),
    "depth of a target draw": (
        23,
        lambda value: KeyedChance((1, 2), 0).uniform(Purpose.TARGET, value),
    ),
    "start of a round": (32, lambda value: KeyedChance((1, 2), value).uniform(Purpose.DRAFT, 3)),
    "node": (23, lambda value: KeyedChance((1, 2), 9).uniform(Purpose.ACCEPT, value)),
    "first word of the key": (
        32,
        lambda value: KeyedChance((value, 0), 9).uniform(Purpose.DRAFT, 3),
    ),
    "second word of the key": (
        32,
        lambda value: KeyedChance((0, value), 9).uniform(Purpose.DRAFT, 3),
    ),
    "position of shared noise": (
        32,
        lambda value: float(noise_uniforms((1, 2), value, np.array([3]))[0]),
    ),
    "token of shared noise": (
        24,
        lambda value: float(noise_uniforms((1, 2), 7, np.array([value]))[0]),
    ),
}


@pytest.mark.parametrize("field", STREAM_FIELDS)
def test_every_bit_of_a_stream_counts(field):
    """A seed cut to 32 bits, an index to 16, ids to bytes, and a prompt's end beyond 4,096 tokens
    would be seen."""
    assert every_bit_counts(STREAM_FIELDS[field], 64)
    assert not every_bit_counts(lambda value: STREAM_FIELDS[field](value & kept(63)), 64)


@pytest.mark.parametrize("field", ROUND_FIELDS)
def test_every_bit_of_a_rounds_keys_counts(field):
    """A round that begins beyond 4,096 tokens, a node beyond 64, noise beyond 256 positions."""
    bits, key = ROUND_FIELDS[field]
    assert every_bit_counts(key, bits)
    assert not every_bit_counts(lambda value: key(value & kept(bits - 1)), bits)


def test_the_length_of_a_prompt_and_the_order_of_fields_count():
    keys = [
        stream_key(0),
        stream_key(0, prompt=(0,)),
        stream_key(0, prompt=(0, 0)),
        stream_key(1),
        stream_key(0, 1),
    ]
    keys += [
        stream_key(0, opening=1),
        stream_key(0, prompt=(1,)),
        stream_key(0, prompt=(0, 1)),
        stream_key(0, prompt=(1, 0)),
    ]
    long = [0] * 5000
    keys += [
        stream_key(0, prompt=[*long[:place], 1, *long[place:]])
        for place in (0, 1, 2500, 4990, 5000)
    ]
    keys += [
        stream_key(0, known=(1,)),
        stream_key(0, known=(1, 0)),
        stream_key(0, opening=1, known=(1,)),
        stream_key(0, known=(2,)),
    ]
    assert len(set(keys)) == len(keys)
    assert stream_key(-1) == stream_key(2**64 - 1), "64 bits of a seed"


def test_a_stream_is_the_same_on_every_machine():
    """BLAKE2b over little-endian words of 64 bits; pinned, so that a seed's text outlives this
    version."""
    assert stream_key(42, 1, prompt=(5, 9, 2), opening=3) == (0x4AC96912, 0x841A153)
    assert copy_seed(42, 1) == 2117409155951002 < 2**53


def test_no_two_draws_of_a_request_have_one_counter(monkeypatch):
    """The words that Threefry is asked for, over purposes, starts and nodes at every edge: each
    once, but for target draws, which agree where the position does."""
    asked = {}
    monkeypatch.setattr("draftproof.core.chance.threefry2x32", lambda key, counter: counter)
    monkeypatch.setattr("draftproof.core.chance.unit_interval", lambda words: words)
    starts = (0, 1, 255, 256, 4095, 4096, 2**31, 2**32 - 2**24)
    nodes = (0, 1, 63, 64, 65, 255, 256, 4096, 2**24 - 2)
    for start, purpose, node in product(starts, set(Purpose) - {Purpose.NOISE}, nodes):
        what = (purpose, start + node) if purpose is Purpose.TARGET else (purpose, start, node)
        counter = KeyedChance((0, 0), start).uniform(purpose, node)
        assert asked.setdefault(counter, what) == what
    noise = []
    monkeypatch.setattr(
        "draftproof.core.coupled.threefry_words",
        lambda key, first, second: noise.append((first, second)) or (second,) * 2,
    )
    for position in starts:
        noise_uniforms((0, 0), position, np.array([0, 1, 255, 2**24 - 1]))
    for first, second in noise:
        for token, word in enumerate(second.tolist()):
            assert asked.setdefault((first, word), (first, token)) == (first, token)
    assert len(asked) > 4 * len(starts)


def test_what_has_no_key_of_its_own_is_refused():
    for node in (-2, 2**24 - 1):
        with pytest.raises(ValueError, match="has no key of its own"):
            KeyedChance((0, 0), 5).uniform(Purpose.ACCEPT, node)


def test_numpy_and_torch_decide_alike():
    rng = np.random.default_rng(0)
    for start in range(200):
        chance = KeyedChance(stream_key(4, 0), start)
        trials = rng.random(5)
        law = rng.dirichlet(np.ones(7))
        for array in (trials, torch.from_numpy(trials)):
            assert int(chance.first_failure(array, Purpose.ACCEPT)) == int(
                chance.first_failure(trials, Purpose.ACCEPT)
            )
            assert int(chance.last_success(array, Purpose.ACCEPT)) == int(
                chance.last_success(trials, Purpose.ACCEPT)
            )
        assert int(chance.draw(torch.from_numpy(law), Purpose.DRAFT, 0)) == int(
            chance.draw(law, Purpose.DRAFT, 0)
        )


def test_vector_forms_match_one_by_one():
    for start in range(300):
        chance = KeyedChance(stream_key(5, 0), start)
        trials = np.array([0.3, 0.9, 0.0, 1.0, 0.5])
        outcomes = [chance.bernoulli(p, Purpose.ACCEPT, i) for i, p in enumerate(trials)]
        assert int(chance.first_failure(trials, Purpose.ACCEPT)) == outcomes.index(False)
        assert int(chance.last_success(trials, Purpose.ACCEPT)) == max(
            i + 1 for i, hit in enumerate(outcomes) if hit
        )


def test_zero_never_succeeds_and_one_always_does(monkeypatch):
    for extreme in (0.0, 1 - 2**-53):
        monkeypatch.setattr(
            KeyedChance, "uniform", lambda self, purpose, node, value=extreme: value
        )
        chance = KeyedChance((0, 0), 0)
        assert not chance.bernoulli(0.0, Purpose.ACCEPT, 0)
        assert chance.bernoulli(1.0, Purpose.ACCEPT, 0)
        assert int(chance.first_failure(np.array([1.0, 0.0]), Purpose.ACCEPT)) == 1
        assert int(chance.last_success(np.array([1.0, 0.0]), Purpose.ACCEPT)) == 1
