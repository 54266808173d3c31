"""Draws that cannot return a forbidden token, and masses that cancel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof.core.laws import inverse_cdf, overlap, residual

EXTREMES = [0.0, 0.5, 1 - 2**-53]


@pytest.mark.parametrize("wrap", [np.asarray, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("uniform", EXTREMES)
def test_a_draw_never_returns_a_token_without_mass(wrap, uniform):
    for law in (
        [0.0, 0.3, 0.0, 0.7, 0.0],
        [0.0, 0.0, 1.0],
        [1e-300, 0.0, 1e-300],
        [0.1] * 10 + [0.0],
    ):
        token = int(inverse_cdf(wrap(law), uniform))
        assert law[token] > 0


def test_a_float32_law_that_sums_below_one_is_drawn_as_if_normalised():
    law = torch.full((50_000,), 1 / 50_000, dtype=torch.float32) * 0.999
    law = torch.cat([law, torch.zeros(10)])
    assert int(inverse_cdf(law, 1 - 2**-53)) == 49_999


def test_draw_follows_the_law():
    law = np.array([0.2, 0.0, 0.5, 0.3])
    grid = (np.arange(10_000) + 0.5) / 10_000
    counts = np.bincount([int(inverse_cdf(law, u)) for u in grid], minlength=4)
    np.testing.assert_allclose(counts / 10_000, law, atol=1e-4)


def test_overlap_is_one_minus_total_variation():
    rng = np.random.default_rng(1)
    one, other = rng.dirichlet(np.ones(9), 5), rng.dirichlet(np.ones(9), 5)
    np.testing.assert_allclose(
        overlap(one, other), 1 - 0.5 * np.abs(one - other).sum(axis=1), atol=1e-15
    )


def test_residual_of_equal_laws_is_the_target_not_nothing():
    law = torch.softmax(torch.randn(32_000, generator=torch.Generator().manual_seed(0)), 0)
    np.testing.assert_array_equal(residual(law, law.clone()), law.double())


def test_residual_keeps_what_float32_would_lose():
    """Two float32 laws that differ by one unit in the last place: the difference is exact in
    float64."""
    target = np.full(8, 0.125, dtype=np.float32)
    draft = target.copy()
    draft[3] = np.nextafter(draft[3], np.float32(0))
    left = residual(target, draft)
    assert left.dtype == np.float64
    assert np.flatnonzero(left).tolist() == [3]


@pytest.mark.parametrize("size", [1, 255, 256, 257, 5000, 49_152])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_law_is_drawn_from_as_a_running_sum_says(size, dtype):
    """Block by block and in one sum: the same token, for uniforms between the jumps."""
    rng = np.random.default_rng(size)
    law = rng.exponential(size=size) * (rng.random(size) < 0.5)
    law[rng.integers(size)] = 1.0
    law = (law / law.sum()).astype(dtype)
    running = np.cumsum(law.astype(np.float64))
    for uniform in rng.random(200):
        goal = uniform * running[-1]
        token = int(np.searchsorted(running, goal, side="right"))
        if np.min(np.abs(running - goal)) > 1e-9:
            assert (
                int(inverse_cdf(law, uniform))
                == token
                == int(inverse_cdf(torch.from_numpy(law), uniform))
            )
        assert law[int(inverse_cdf(law, uniform))] > 0
    for uniform in EXTREMES:
        assert law[int(inverse_cdf(law, uniform))] > 0
