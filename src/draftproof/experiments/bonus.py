"""What the bonus token is worth: a round whose drafts are all accepted has paid for one more target
law.

Leaving it out keeps the output exact, so no test of the distribution can see it; it costs alpha^k
tokens a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from draftproof.core.formulas import expected_speedup, expected_tokens
from draftproof.report.figures import COLORS, panels
from draftproof.report.result import Column, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALPHAS = (0.6, 0.8, 0.9)
LENGTHS = (1, 2, 4, 6, 8)
COST = 0.05


def bonus() -> Result:
    """No chance in it: closed formulas, cost ratio 0.05."""
    rows = []
    for alpha in ALPHAS:
        for k in LENGTHS:
            tokens, worth = float(expected_tokens(alpha, k)), alpha**k
            gain = float(expected_speedup(alpha, k, COST))
            counts = {
                "tokens_with": tokens,
                "tokens_without": tokens - worth,
                "loss": worth / tokens,
            }
            speeds = {"speedup_with": gain, "speedup_without": gain * (1 - worth / tokens)}
            rows.append({"alpha": alpha, "num_speculative_tokens": k, **counts, **speeds})
    return Result(
        "bonus",
        f"Tokens per round with and without the bonus token (cost ratio {COST})",
        (
            Column("alpha", "alpha", ".1f"),
            Column("drafts", "num_speculative_tokens", "d"),
            Column("tokens\nwith", "tokens_with", ".2f"),
            Column("tokens\nwithout", "tokens_without", ".2f"),
            Column("loss", "loss", ".0%"),
            Column("speedup\nwith", "speedup_with", ".2f"),
            Column("speedup\nwithout", "speedup_without", ".2f"),
        ),
        rows,
        (
            "At alpha 0.8 and 4 drafts: 3.36 tokens with the bonus, 2.95 without, 12% fewer.",
            (
                "With one draft and no bonus a round emits exactly one token, as plain "
                "decoding does: all cost, no gain."
            ),
        ),
        _draw,
        {"cost_ratio": COST},
    )


def _draw(figure: Figure) -> None:
    axes = panels(figure, 1)[0]
    drafts = np.arange(1, 13)
    for color, alpha in zip(COLORS, (0.5, *ALPHAS, 0.95), strict=False):
        axes.plot(
            drafts,
            100 * alpha**drafts / expected_tokens(alpha, drafts),
            "o-",
            color=color,
            label=f"α = {alpha:g}",
        )
    loss = 100 * 0.8**4 / float(expected_tokens(0.8, 4))
    axes.annotate(
        f"{loss:.0f}% at α = 0.8, 4 drafts",
        (4, loss),
        (5.2, 32),
        arrowprops={"arrowstyle": "->", "color": "#555555"},
    )
    axes.set(
        xlabel="drafts per round",
        ylabel="tokens lost without the bonus (%)",
        title="The bonus token matters most when drafts are short",
        ylim=(0, 52),
        xticks=drafts,
    )
    axes.legend(loc="upper right")
