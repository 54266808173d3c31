"""The enumerating source: it reaches every outcome once, with the right probability, and objects to
a key used twice."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.core.chance import KeyedChance, Purpose, stream_key
from draftproof.core.enumerate import outcomes, position_key
from draftproof.errors import KeyRepeatedError

LAW = np.array([0.5, 0.0, 0.25, 0.25])


def test_every_outcome_once():
    def run(chance):
        first = chance.draw(LAW, Purpose.DRAFT, 0)
        return first, chance.bernoulli(0.25, Purpose.ACCEPT, 0) if first == 2 else None

    found = {result: outcome.probability for outcome, result in outcomes(run, 7)}
    assert found == {(0, None): 0.5, (2, True): 0.0625, (2, False): 0.1875, (3, None): 0.25}


def test_certain_events_do_not_branch():
    found = list(
        outcomes(
            lambda chance: (
                chance.bernoulli(0.0, Purpose.ACCEPT, 0),
                chance.bernoulli(1.0, Purpose.ACCEPT, 1),
            ),
            0,
        )
    )
    assert [result for _, result in found] == [(False, True)]


def test_vector_forms_agree_with_their_definition():
    trials = np.array([0.5, 0.25, 0.75])
    first = {}
    for outcome, result in outcomes(lambda chance: chance.first_failure(trials, Purpose.ACCEPT), 0):
        first[result] = first.get(result, 0.0) + outcome.probability
    assert first == {0: 0.5, 1: 0.375, 2: 0.03125, 3: 0.09375}
    last = {}
    for outcome, result in outcomes(lambda chance: chance.last_success(trials, Purpose.ACCEPT), 0):
        last[result] = last.get(result, 0.0) + outcome.probability
    assert last == {3: 0.75, 2: 0.0625, 1: 0.09375, 0: 0.09375}


def test_a_key_used_twice_raises():
    def run(chance):
        return chance.draw(LAW, Purpose.DRAFT, 0), chance.draw(LAW, Purpose.DRAFT, 0)

    with pytest.raises(KeyRepeatedError, match="draft"):
        list(outcomes(run, 0))


def test_a_shared_key_is_followed_through():
    """One uniform asked twice: u < 0.5 and then u < 0.75 are not independent, P(both) = 0.5 and
    P(second alone) = 0.25."""

    def run(chance):
        return chance.bernoulli(0.5, Purpose.ACCEPT, 0), chance.bernoulli(0.75, Purpose.ACCEPT, 0)

    found = {
        result: outcome.probability
        for outcome, result in outcomes(run, 0, share=True, key=position_key)
    }
    assert found == {(True, True): 0.5, (False, True): 0.25, (False, False): 0.25}


def test_known_keys_condition_what_follows():
    known = {position_key(3, Purpose.ACCEPT, 0): (0.5, 1.0)}
    run = lambda chance: chance.bernoulli(0.75, Purpose.ACCEPT, 0)  # noqa: E731
    found = {r: o.probability for o, r in outcomes(run, 3, known, share=True, key=position_key)}
    assert found == {True: 0.5, False: 0.5}


def test_keyed_chance_has_the_enumerated_frequencies():
    """Fixed seeds 0..19,999; a fair source leaves 4.5 standard errors with probability 7e-6 a
    frequency."""
    counts = np.zeros(4)
    for seed in range(20_000):
        counts[int(KeyedChance(stream_key(seed, 0), 5).draw(LAW, Purpose.DRAFT, 1))] += 1
    frequencies, errors = counts / 20_000, np.sqrt(LAW * (1 - LAW) / 20_000)
    assert counts[1] == 0
    assert np.all(np.abs(frequencies - LAW) <= 4.5 * errors)
