"""Shared Gumbel noise: the vector form is the scalar generator, NumPy and torch agree to the bit,
and its draws have their law."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from draftproof.core import coupled
from draftproof.core.chance import Purpose, stream_key, threefry2x32
from draftproof.core.coupled import CoupledChance, gumbel_draw, noise_uniforms, threefry_words

KEY = stream_key(2**40 + 17, 3)


def test_the_vector_form_is_the_scalar_generator_in_numpy_and_torch():
    counters = np.array([0, 1, 2, 77, 2**24 - 1, 2**32 - 1], dtype=np.int64)
    high, low = threefry_words(KEY, 12_345, counters)
    assert list(zip(high.tolist(), low.tolist(), strict=True)) == [
        threefry2x32(KEY, (12_345, int(c))) for c in counters
    ]
    torch_high, torch_low = threefry_words(KEY, 12_345, torch.from_numpy(counters))
    assert torch_high.tolist() == high.tolist()
    assert torch_low.tolist() == low.tolist()


def test_uniforms_never_reach_an_end_and_are_the_same_bits():
    tokens = np.arange(50_000)
    uniforms = noise_uniforms(KEY, 7, tokens)
    assert uniforms.min() > 0
    assert uniforms.max() < 1
    assert len(set(uniforms.tolist())) == len(tokens)
    assert noise_uniforms(KEY, 7, torch.arange(50_000)).tolist() == uniforms.tolist()


@pytest.mark.parametrize("word", [0, 2**32 - 1])
def test_uniforms_of_extreme_words_are_no_ends_either(word, monkeypatch):
    monkeypatch.setattr(
        coupled, "threefry_words", lambda key, first, second: (second * 0 + word, second * 0 + word)
    )
    uniform = float(noise_uniforms(KEY, 7, np.arange(1))[0])
    assert 0 < uniform < 1
    assert np.isfinite(np.log(-np.log(uniform)))


def test_noise_depends_on_position_token_seed_and_sample():
    one = noise_uniforms(KEY, 7, np.arange(4))
    assert not np.any(one == noise_uniforms(KEY, 8, np.arange(4)))
    assert not np.any(one == noise_uniforms(stream_key(2**40 + 17, 4), 7, np.arange(4)))
    assert not np.any(one == noise_uniforms(stream_key(2**40 + 18, 3), 7, np.arange(4)))


def test_draws_have_the_law_and_never_a_forbidden_token():
    """4,000 positions; chi-square with 3 degrees of freedom, a right source is refused with
    probability 1e-6. A shift of 0.05 between two tokens gives a noncentrality of 100 and is missed
    with probability below 1e-3."""
    law = np.array([0.5, 0.0, 0.2, 0.2, 0.1])
    counts = np.zeros(5)
    for position in range(4_000):
        counts[int(gumbel_draw(law, KEY, position))] += 1
    assert counts[1] == 0
    expected = 4_000 * law[law > 0]
    assert ((counts[law > 0] - expected) ** 2 / expected).sum() <= chi2.isf(1e-6, 3)


def test_only_the_support_matters_and_scale_does_not():
    rng = np.random.default_rng(0)
    law = rng.dirichlet(np.ones(40))
    truncated = np.where(law >= np.sort(law)[-5], law, 0.0)
    for position in range(200):
        token = int(gumbel_draw(truncated, KEY, position))
        assert token == int(gumbel_draw(7.5 * truncated, KEY, position))
        assert token == int(gumbel_draw(torch.from_numpy(truncated), KEY, position))
        if truncated[int(gumbel_draw(law, KEY, position))] > 0:
            assert token == int(gumbel_draw(law, KEY, position)), (
                "noise of a token does not depend on who else is there"
            )


def test_draft_and_target_share_noise_by_position_and_nothing_else():
    law = np.full(64, 1 / 64)
    chance = CoupledChance(KEY, 10)
    assert (
        int(chance.draw_draft(law, 5, 2))
        == int(chance.draw_target(law, 2))
        == int(CoupledChance(KEY, 12).draw_target(law, 0))
    )
    assert {int(chance.draw_target(law, depth)) for depth in range(30)} != {
        int(chance.draw_target(law, 0))
    }
    assert 0 <= chance.uniform(Purpose.REPLACEMENT, 0) < 1
