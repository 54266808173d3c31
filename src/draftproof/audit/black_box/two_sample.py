"""Texts of one engine against texts of another, prompt by prompt, without any model: is it the same
law?

Maximum mean discrepancy with a kernel on strings, its p-value by permutation within prompts: exact
at any sample size. The Hamming kernel counts the places at which two texts agree, as in published
work on model equality (Gao et al. 2410.20247); the prefix kernel counts the tokens before they
first differ, so that what follows another beginning adds no noise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.black_box.samples import Ids, Sample
from draftproof.audit.verdict import Finding
from draftproof.errors import UsageError

Matrix = NDArray[np.float64]
PADDING = -1
BLOCK = 500
"""Permutations at a time."""


def two_sample_findings(
    ours: Iterable[Sample], theirs: Iterable[Sample], level: float, *, seed: int = 0
) -> list[Finding]:
    """Both kernels. effect: squared discrepancy in tokens, 0 on average for equal laws; interval:
    of its values under equal laws, 95% of them. UsageError without a prompt that has two texts on
    each side."""
    pairs = _by_prompt(ours, theirs)
    if not pairs:
        raise UsageError(
            "no prompt has two texts of both engines: send the same prompts to both, "
            "each at least twice"
        )
    permutations = int(np.ceil(10 / level))
    found = []
    for name, kernel in (("Hamming kernel", hamming), ("prefix kernel", common_prefix)):
        rng = np.random.default_rng(seed)
        drawn, permuted, n = 0.0, np.zeros(permutations), 0
        for first, second in pairs:
            gram = kernel(_padded([*first, *second]))
            drawn += _discrepancy(gram, _labels(len(first), len(second)))[0]
            permuted += _permuted(gram, len(first), permutations, rng)
            n += len(first) + len(second)
        p_value = (1 + int((permuted >= drawn - 1e-12).sum())) / (1 + permutations)
        low, high = (float(np.quantile(permuted, share)) for share in (0.025, 0.975))
        found.append(
            Finding(
                f"two samples, {name}", drawn, p_value, None, drawn / len(pairs), (low, high), n
            )
        )
    return found


def hamming(texts: NDArray[np.int64]) -> Matrix:
    """Places at which two texts agree [n, n]; texts: [n, length], padded."""
    return np.stack([(texts == row).sum(axis=1) for row in texts]).astype(float)


def common_prefix(texts: NDArray[np.int64]) -> Matrix:
    """Tokens before two texts differ [n, n]."""
    return np.stack([np.cumprod(texts == row, axis=1).sum(axis=1) for row in texts]).astype(float)


def _by_prompt(
    ours: Iterable[Sample], theirs: Iterable[Sample]
) -> list[tuple[list[Ids], list[Ids]]]:
    sides: dict[Ids, tuple[list[Ids], list[Ids]]] = defaultdict(lambda: ([], []))
    for side, samples in enumerate((ours, theirs)):
        for sample in samples:
            sides[sample.prompt][side].append(sample.output)
    return [pair for pair in sides.values() if min(map(len, pair)) >= 2]


def _padded(texts: list[Ids]) -> NDArray[np.int64]:
    longest = max(map(len, texts))
    return np.array([(*text, *[PADDING] * (longest - len(text))) for text in texts], dtype=np.int64)


def _labels(first: int, second: int) -> NDArray[np.bool_]:
    return np.array([[True] * first + [False] * second])


def _discrepancy(gram: Matrix, labels: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Unbiased squared MMD of each row of labels [rows, n] (Gretton et al. 2012)."""
    off = gram - np.diag(np.diag(gram))
    x, y = labels.astype(float), (~labels).astype(float)
    m, n = x.sum(axis=1), y.sum(axis=1)
    within_x, within_y = ((side @ off) * side for side in (x, y))
    across = (x @ off) * y
    sums = within_x.sum(axis=1) / (m * (m - 1)) + within_y.sum(axis=1) / (n * (n - 1))
    found: NDArray[np.float64] = sums - 2.0 * across.sum(axis=1) / (m * n)
    return found


def _permuted(
    gram: Matrix, first: int, permutations: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    base = _labels(first, len(gram) - first)
    parts = []
    for begin in range(0, permutations, BLOCK):
        rows = min(BLOCK, permutations - begin)
        parts.append(_discrepancy(gram, rng.permuted(np.repeat(base, rows, axis=0), axis=1)))
    return np.concatenate(parts)
