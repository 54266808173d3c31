"""How many drafts? The best length and its speedup over acceptance and cost, and where no draft
pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from draftproof.core.formulas import best_draft_length, expected_speedup, expected_tokens
from draftproof.report.figures import panels
from draftproof.report.result import Column, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
COSTS = (0.01, 0.05, 0.11, 0.32, 0.6)
LONGEST = 16


def best_length() -> Result:
    """No chance in it: closed formulas with free verification."""
    rows = []
    for alpha in ALPHAS:
        for cost in COSTS:
            k = int(best_draft_length(alpha, cost, LONGEST))
            gain, tokens = float(expected_speedup(alpha, k, cost)), float(expected_tokens(alpha, k))
            place = {"alpha": alpha, "cost_ratio": cost, "num_speculative_tokens": k}
            rows.append({**place, "tokens_per_round": tokens, "speedup": gain})
    return Result(
        "best-length",
        f"Best draft length (up to {LONGEST}) and its speedup, with free verification",
        (
            Column("alpha", "alpha", ".2f"),
            Column("cost ratio", "cost_ratio", ".2f"),
            Column("best\nlength", "num_speculative_tokens", "d"),
            Column("tokens\nper round", "tokens_per_round", ".2f"),
            Column("speedup", "speedup", ".2f"),
        ),
        rows,
        (
            (
                "Drafting pays at all when the cost ratio is below alpha: one draft brings "
                "alpha tokens and costs c."
            ),
            "Near the best length the speedup is flat: one draft more or less costs little.",
        ),
        _draw,
        {"longest": LONGEST},
    )


def _draw(figure: Figure) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm

    axes = panels(figure, 1)[0]
    alphas, costs = np.linspace(0.02, 0.98, 385), np.linspace(0.005, 0.8, 319)
    lengths = best_draft_length(alphas[None, :], costs[:, None], LONGEST)
    gains = expected_speedup(alphas[None, :], lengths, costs[:, None])
    edges = [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 6.5, 8.5, 12.5, 16.5]
    colors = colormaps["viridis"].resampled(len(edges) - 1)
    mesh = axes.pcolormesh(
        alphas, costs, lengths, cmap=colors, norm=BoundaryNorm(edges, colors.N), rasterized=True
    )
    lines = axes.contour(
        alphas, costs, gains, levels=[1.1, 1.25, 1.5, 2, 3, 5], colors="white", linewidths=1.4
    )
    axes.clabel(lines, fmt=lambda level: f"{level:g}x", fontsize=11)
    bar = figure.colorbar(
        mesh, ax=axes, label="best number of drafts", ticks=[0, 1, 2, 3, 4, 5.5, 7.5, 10.5, 14.5]
    )
    bar.ax.set_yticklabels(["0: does\nnot pay", "1", "2", "3", "4", "5-6", "7-8", "9-12", "13-16"])
    bar.ax.grid(visible=False)
    axes.set(
        xlabel="acceptance rate α",
        ylabel="cost ratio c (draft step / target step)",
        title="Best draft length; white: speedup",
    )
    axes.grid(visible=False)
