"""Keyed chance on an accelerator decides as it does in memory, at any length and where nothing
fails or nothing succeeds."""

from __future__ import annotations

import pytest
import torch

from draftproof.core.chance import KeyedChance, Purpose, stream_key
from draftproof.core.coupled import CoupledChance
from draftproof.core.laws import inverse_cdf
from pretended_devices import FIRST, pretended


@pytest.mark.parametrize("length", [1, 2, 5])
def test_trials_end_where_they_end_in_memory(length):
    generator = torch.Generator().manual_seed(length)
    for start in range(60):
        chance = KeyedChance(stream_key(7, 0), start)
        drawn = torch.rand(length, generator=generator, dtype=torch.float64)
        for trials in (drawn, torch.zeros(length).double(), torch.ones(length).double()):
            expected = (
                chance.first_failure(trials, Purpose.ACCEPT),
                chance.last_success(trials, Purpose.ACCEPT),
            )
            with pretended():
                there = trials.to(FIRST)
                found = (
                    chance.first_failure(there, Purpose.ACCEPT),
                    chance.last_success(there, Purpose.ACCEPT),
                )
                assert tuple(int(value) for value in found) == expected
                assert all(value.device == FIRST for value in found)


@pytest.mark.parametrize("chance", [KeyedChance, CoupledChance])
def test_draws_are_those_in_memory(chance):
    generator = torch.Generator().manual_seed(1)
    for start in range(40):
        here = chance(stream_key(3, 1), start)
        law = torch.rand(6, generator=generator, dtype=torch.float64) * (
            torch.rand(6, generator=generator) < 0.7
        )
        law[start % 6] = 0.5
        expected = [
            int(here.draw_draft(law, 0, 0)),
            int(here.draw_target(law, 2)),
            int(here.draw(law, Purpose.ACCEPT, 3)),
        ]
        with pretended():
            there = law.to(FIRST)
            found = [
                here.draw_draft(there, 0, 0),
                here.draw_target(there, 2),
                here.draw(there, Purpose.ACCEPT, 3),
            ]
            assert [int(token) for token in found] == expected


@pytest.mark.parametrize("uniform", [0.0, 0.4999, 1 - 2**-53])
def test_a_token_without_mass_never_comes_out(uniform):
    for law in ([0.0, 0.5, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0], [1e-300, 0.0, 1e-300]):
        with pretended():
            token = int(inverse_cdf(torch.tensor(law, dtype=torch.float64).to(FIRST), uniform))
        assert law[token] > 0
        assert token == inverse_cdf(torch.tensor(law, dtype=torch.float64), uniform)
