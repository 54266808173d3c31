"""What a length that adapts gains over the best fixed one, on acceptance that comes and goes along
the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftproof.report.figures import panels
from draftproof.report.result import Column, Result
from draftproof.simulate.lengths import Prices, Process, decoding_speedup, speedup, survival_speedup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROCESS = Process(mean=0.918, spread=2.05, correlation=0.7)
"""Fitted so that the best fixed length gives 1.705 and the survival rule 1.930, the two figures
that are known of the simulation repeated here (docs/draft_lengths.md); its own process was not
recorded."""
PRICES = Prices()
LENGTHS = range(9)
CUTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
ERRORS = (0.5, 0.75, 1.0, 1.25, 1.5)
TOKENS = 120


def adaptive_length(runs: int = 1500, seed: int = 0) -> Result:
    """runs: streams of TOKENS tokens each."""
    chances, accepted = PROCESS.draw(runs, TOKENS, seed)
    rate = survival_speedup(chances, accepted, PRICES)
    rows: list[dict[str, Any]] = [
        {
            "rule": "fixed",
            "value": float(k),
            "speedup": speedup(chances, accepted, "fixed", k, PRICES),
        }
        for k in LENGTHS
    ]
    rows += [
        {"rule": "cut", "value": cut, "speedup": speedup(chances, accepted, "cut", cut, PRICES)}
        for cut in CUTS
    ]
    rows += [
        {
            "rule": "survival",
            "value": error,
            "speedup": speedup(chances, accepted, "survival", error * rate, PRICES),
        }
        for error in ERRORS
    ]
    learning = decoding_speedup(
        chances[: max(runs // 50, 1)], accepted[: max(runs // 50, 1)], PRICES
    )
    rows.append({"rule": "survival, learning", "value": None, "speedup": learning})
    best = max(row["speedup"] for row in rows if row["rule"] == "fixed")
    return Result(
        "adaptive-length",
        "Speedup by rule for the draft length, acceptance coming and going",
        (
            Column("rule", "rule"),
            Column("length, cut, or\nlambda over its best", "value", ".2f"),
            Column("speedup", "speedup", ".3f"),
        ),
        rows,
        (
            (
                f"The survival rule gives {rate:.3f}, the best fixed length {best:.3f}: "
                f"{rate / best - 1:+.1%}."
            ),
            (
                "As decoding runs it, learning, and paying for every law before its chance "
                f"is known: {learning:.3f}."
            ),
            "A threshold a quarter off costs little: lambda need not be known well.",
        ),
        _draw(rows),
        {"runs": runs, "seed": seed},
    )


def _draw(rows: list[dict[str, Any]]) -> Any:
    def draw(figure: Figure) -> None:
        axes = panels(figure, 1)[0]
        fixed = [row for row in rows if row["rule"] == "fixed"]
        axes.plot(
            [row["value"] for row in fixed],
            [row["speedup"] for row in fixed],
            marker="o",
            label="fixed length",
        )
        for rule, style in (("survival", "-"), ("cut", "--")):
            best = max(row["speedup"] for row in rows if row["rule"] == rule)
            axes.axhline(best, linestyle=style, color="black", label=f"{rule}: {best:.2f}")
        axes.set(
            xlabel="fixed draft length",
            ylabel="speedup over plain decoding",
            title="A length that adapts",
        )
        axes.legend()

    return draw
