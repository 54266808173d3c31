"""Top-k, top-p and min-p by short cuts equal their definitions by full sorts, on rows made to break
short cuts."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from draftproof.core.dense import dense_laws, dense_scores
from draftproof.core.records import Array
from draftproof.core.truncate import (
    Truncation,
    largest_ids,
    scale_and_divisor,
    write_law,
    write_scores,
)


def law_by_definition(x: Array, truncation: Truncation) -> Array:
    """As transformers defines the four, with one stable full sort each."""
    x = (x - x.max()) / truncation.temperature
    if truncation.top_k:
        x = np.where(x < np.sort(x)[-truncation.top_k], -np.inf, x)
    law = np.exp(x) / np.exp(x).sum()
    if truncation.top_p < 1:
        order = np.argsort(law, kind="stable")
        removed = np.cumsum(law[order]) <= 1 - truncation.top_p
        removed[-1] = False
        law[order[removed]] = 0
        law /= law.sum()
    law[law < truncation.min_p * law.max()] = 0
    return law / law.sum()


def law(x: Array, truncation: Truncation) -> Array:
    out = np.full_like(x, np.nan)
    write_law(x, x.max(), truncation, out)
    return out


def rows(vocab_size: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    zipf = -1.1 * np.log(np.arange(1, vocab_size + 1) + 1.5) + 0.5 * rng.standard_normal(vocab_size)
    banned = rng.standard_normal(vocab_size)
    banned[rng.permutation(vocab_size)[: -max(2, vocab_size // 1000)]] = -np.inf
    one = rng.standard_normal(vocab_size)
    one[rng.integers(vocab_size)] = 60.0
    return {
        "normal": rng.standard_normal(vocab_size) * 3,
        "zipf": rng.permutation(zipf),
        "one certain": one,
        "nearly flat": rng.standard_normal(vocab_size) * 1e-3,
        "flat": np.ones(vocab_size),
        "mostly banned": banned,
        "sorted up": np.sort(rng.standard_normal(vocab_size)),
        "sorted down": -np.sort(rng.standard_normal(vocab_size)),
    }


TRUNCATIONS = [
    Truncation(temperature, top_k, top_p, min_p)
    for temperature in (0.7,)
    for top_k in (0, 1, 7, 50, 5000)
    for top_p in (1.0, 0.999999, 0.9, 0.3, 1e-6, 5e-324)
    for min_p in (0.0, 0.05)
]


@pytest.mark.parametrize("vocab_size", [6, 4096, 20_011])
def test_short_cuts_give_the_law_of_the_definition(vocab_size: int) -> None:
    for name, x in rows(vocab_size, vocab_size).items():
        for truncation in TRUNCATIONS:
            if truncation.top_k >= vocab_size:
                continue
            expected, found = law_by_definition(x, truncation), law(x, truncation)
            np.testing.assert_allclose(
                found, expected, rtol=1e-9, atol=1e-15, err_msg=f"{name} {truncation}"
            )
            assert ((found == 0) == (expected == 0)).all(), (name, truncation)


@pytest.mark.parametrize("vocab_size", [8, 5000])
def test_among_tied_tokens_top_k_keeps_all_and_top_p_removes_the_lower_ids(vocab_size: int) -> None:
    dice = random.Random(1)
    for _ in range(100):
        tied = sorted(dice.sample(range(vocab_size), dice.randint(1, 7)))
        x = np.full(vocab_size, -800.0)
        x[tied] = 0.0
        # sums are exact: no tie is broken by rounding
        top_p = dice.choice([1.0, 0.75, 0.5, 0.25, 0.125, 1e-9])
        num_removed = min(int((1 - top_p) * len(tied)), len(tied) - 1)
        for top_k in (0, 1, 2):
            found = law(x, Truncation(1.0, top_k, top_p, 0.0))
            assert np.flatnonzero(found).tolist() == tied[num_removed:]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_dense_twin_gives_the_same_laws(library: str) -> None:
    for vocab_size in (6, 5000):
        x = np.stack(list(rows(vocab_size, 3).values()))
        for truncation in TRUNCATIONS:
            if truncation.top_k >= vocab_size:
                continue
            expected = np.stack([law(row, truncation) for row in x])
            given = torch.from_numpy(x) if library == "torch" else x
            with np.errstate(over="ignore"):
                found = np.asarray(dense_laws(given, truncation))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)
            assert ((found == 0) == (expected == 0)).all(), truncation


def test_scores_are_the_logarithm_of_the_law_up_to_a_constant() -> None:
    for x in rows(500, 9).values():
        for truncation in (
            Truncation(0.7, 0, 1.0, 0.0),
            Truncation(0.7, 20, 0.9, 0.01),
            Truncation(2.0, 0, 0.9, 0.0),
        ):
            scores = np.empty_like(x)
            write_scores(x, x.max(), truncation, scores)
            assert scores.max() == 0
            np.testing.assert_allclose(
                np.exp(scores) / np.exp(scores).sum(), law(x, truncation), rtol=1e-12
            )
            np.testing.assert_allclose(dense_scores(x[None], truncation)[0], scores, rtol=1e-12)


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize(
    "exponent", [-1074, -600, -499, -170, -150, -61, -60, -1, 0, 3, 99, 101, 150]
)
def test_the_two_step_division_is_exact(itemsize: int, exponent: int) -> None:
    temperature = 2.0**exponent
    dtype = np.float32 if itemsize == 4 else np.float64
    scale, divisor = scale_and_divisor(temperature, itemsize)
    assert 0 < dtype(scale) < np.inf
    assert 0 < 1 / dtype(divisor) < np.inf
    for difference in (-1.0, -3.0 * 2.0**-20, -(2.0**-140)):
        exact = Fraction(difference) / Fraction(temperature)
        with np.errstate(over="ignore"):
            found = dtype(difference) * dtype(scale) / dtype(divisor)
        if exact > -1000:  # beyond it the exponential is zero in either precision
            assert float(found) == pytest.approx(float(exact), rel=1e-6, abs=1e-30)
        else:
            assert found <= -1000


@pytest.mark.parametrize("size", [5, 4500, 20_000])
@pytest.mark.parametrize("count", [0, 1, 3, 10, 70])
def test_the_largest_are_those_of_a_whole_sort(size: int, count: int) -> None:
    """Values from a short list, so that many are equal, and a third of them removed."""
    rng = np.random.default_rng([size, count])
    x = rng.integers(0, 12, size).astype(np.float32)
    x[rng.random(size) < 1 / 3] = -np.inf
    whole = [int(i) for i in np.argsort(-x, kind="stable")[:count] if x[i] > -np.inf]
    assert [int(i) for i in largest_ids(x, count) if x[i] > -np.inf] == whole
