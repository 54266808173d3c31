"""Noise or bias? TV against the number of runs, for the right round and for one that forgets the
residual.

An exact sampler's distance to its target is sampling noise and falls like 1/sqrt(runs); a biased
one levels off at its bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftproof.experiments.exact import empirical_law, exact_law, mean_noise_tv, sampled_tokens, tv
from draftproof.experiments.rounds import ROUNDS
from draftproof.experiments.toy import PREFIX, chain_draft, chain_law, chain_target
from draftproof.report.figures import BLACK, BLUE, RED, panels
from draftproof.report.result import Column, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAULT = "resample from the target, not the residual"
NUM_TOKENS, DRAFTS = 2, 2


def noise(*, seed: int = 0, runs: int = 100_000) -> Result:
    """runs: the largest number of runs; smaller ones are its first parts."""
    rng = np.random.default_rng(seed)
    sizes = np.unique(np.geomspace(min(1000, runs), runs, 9).astype(int))
    measured = {name: _curve(name, sizes, rng) for name in ("correct", FAULT)}
    bias = tv(
        exact_law(ROUNDS[FAULT], chain_target, chain_draft, PREFIX, NUM_TOKENS, DRAFTS), chain_law()
    )
    line = [mean_noise_tv(chain_law(), n) for n in sizes]
    rows = [
        {"runs": int(n), "tv_correct": right, "tv_expected_noise": noise_level, "tv_biased": wrong}
        for n, right, noise_level, wrong in zip(
            sizes, measured["correct"], line, measured[FAULT], strict=True
        )
    ]
    return Result(
        "noise",
        "Distance to the target's law of two tokens, by number of runs",
        (
            Column("runs", "runs", ",d"),
            Column("TV, correct", "tv_correct", ".4f"),
            Column("noise to expect\n(falls as 1/sqrt(runs))", "tv_expected_noise", ".4f"),
            Column("TV, replacement\nfrom the target", "tv_biased", ".4f"),
        ),
        rows,
        (
            f"The correct round shows noise only: {line[0]:.4f} expected at {sizes[0]:,} runs, "
            f"{line[-1]:.4f} at {sizes[-1]:,}.",
            f"The biased round levels off at its bias, TV {bias:.4f}: more runs do not help it.",
        ),
        lambda figure: _draw(figure, sizes, measured, line, bias),
        {"bias": bias, "seed": seed},
    )


def _curve(name: str, sizes: NDArray[np.int64], rng: np.random.Generator) -> list[float]:
    tokens = sampled_tokens(
        ROUNDS[name], chain_target, chain_draft, PREFIX, NUM_TOKENS, DRAFTS, int(sizes[-1]), rng
    )
    return [tv(empirical_law(tokens[:n], 3), chain_law()) for n in sizes]


def _draw(
    figure: Figure,
    sizes: NDArray[np.int64],
    measured: dict[str, list[float]],
    line: list[float],
    bias: float,
) -> None:
    axes = panels(figure, 1)[0]
    axes.loglog(
        sizes, measured[FAULT], "s-", color=RED, label="wrong: replacement drawn from the target"
    )
    axes.axhline(bias, color=RED, linestyle=":", linewidth=1.6, label=f"its exact bias, {bias:.3f}")
    axes.loglog(sizes, measured["correct"], "o-", color=BLUE, label="correct")
    axes.loglog(sizes, line, "--", color=BLACK, linewidth=1.6, label="expected noise, ∝ 1/√runs")
    axes.set(
        xlabel="runs (two tokens each)",
        ylabel="total variation distance to the target",
        title="More runs remove noise, never bias",
        ylim=(min([*line, *measured["correct"]]) / 2, 0.6),
    )
    axes.legend(loc="lower left")
