"""What temperature does to acceptance: alpha against T when both models' logits are correlated.

Both ends are simple. Hot, both laws tend to uniform and alpha to 1. Cold, both tend to one-hot and
alpha to the chance that the two models have the same favourite. In between alpha can dip: laws are
spread out enough to differ, not enough to agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from draftproof.core.formulas import acceptance_rate
from draftproof.report.figures import COLORS, panels
from draftproof.report.result import Column, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VOCAB, SPREAD = 1000, 3.0
CORRELATIONS = (0.5, 0.8, 0.9, 0.98)
TEMPERATURES = np.geomspace(0.01, 100, 33)


def temperature(*, seed: int = 0, runs: int = 200) -> Result:
    """runs: pairs of logit vectors drawn for each correlation."""
    rng = np.random.default_rng(seed)
    curves, agreement = {}, {}
    for correlation in CORRELATIONS:
        target, draft = correlated_logits(correlation, runs, rng)
        curves[correlation] = [float(alpha_at(target, draft, t).mean()) for t in TEMPERATURES]
        agreement[correlation] = float((target.argmax(axis=-1) == draft.argmax(axis=-1)).mean())
    rows: list[dict[str, Any]] = [
        {
            "correlation": correlation,
            "same_favourite": agreement[correlation],
            **{
                f"alpha_{t:g}": float(
                    np.interp(np.log(t), np.log(TEMPERATURES), curves[correlation])
                )
                for t in _SHOWN
            },
        }
        for correlation in CORRELATIONS
    ]
    return Result(
        "temperature",
        "Acceptance rate alpha against temperature, for correlated logits",
        (
            Column("correlation\nof logits", "correlation", ".2f"),
            Column("same\nfavourite", "same_favourite", ".3f"),
            *(Column(f"alpha\nT = {t:g}", f"alpha_{t:g}", ".3f") for t in _SHOWN),
        ),
        rows,
        (
            (
                "Cold: both laws become one-hot, so alpha tends to the share of contexts in "
                "which the favourites agree."
            ),
            "Hot: both laws become uniform, so alpha tends to 1, whatever the models.",
        ),
        lambda figure: _draw(figure, curves, agreement),
        {
            "vocab_size": VOCAB,
            "logit_standard_deviation": SPREAD,
            "temperatures": TEMPERATURES.tolist(),
            "alpha": {str(correlation): curve for correlation, curve in curves.items()},
            "seed": seed,
        },
    )


_SHOWN = (0.01, 0.3, 1.0, 3.0, 100.0)


def correlated_logits(
    correlation: float, pairs: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two arrays [pairs, VOCAB] of normal logits with standard deviation SPREAD and this
    correlation."""
    target, other = SPREAD * rng.standard_normal((2, pairs, VOCAB))
    return target, correlation * target + np.sqrt(1 - correlation**2) * other


def alpha_at(
    target: NDArray[np.float64], draft: NDArray[np.float64], t: float
) -> NDArray[np.float64]:
    """Overlap [pairs] of the two laws at temperature t."""
    return acceptance_rate(_softmax(target / t), _softmax(draft / t))  # type: ignore[no-any-return]


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    masses = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return masses / masses.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]


def _draw(figure: Figure, curves: dict[float, list[float]], agreement: dict[float, float]) -> None:
    axes = panels(figure, 1)[0]
    for color, (correlation, curve) in zip(COLORS, curves.items(), strict=False):
        axes.semilogx(TEMPERATURES, curve, color=color, label=f"correlation {correlation:g}")
        axes.plot(TEMPERATURES[0] / 1.25, agreement[correlation], ">", color=color, clip_on=False)
    axes.axvline(1, color="#999999", linewidth=1)
    axes.set(
        xlabel="temperature T",
        ylabel="acceptance rate α",
        title="Cold: α is how often the favourites agree (▸). Hot: α goes to 1",
        ylim=(0, 1.02),
        xlim=(TEMPERATURES[0] / 1.25, TEMPERATURES[-1]),
    )
    axes.legend(loc="lower right")
