"""The two simulations as results to show: speed over batch size on a real card, and simulated
generations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from draftproof.core.formulas import checked_length, expected_tokens
from draftproof.report.figures import BLACK, COLORS, panels, styles
from draftproof.report.result import Column, Result
from draftproof.simulate.acceptance import AcceptanceProcess
from draftproof.simulate.batch import BatchModel, distinct_experts
from draftproof.simulate.generation import VerifyCost
from draftproof.simulate.sweep import sweep, sweep_process

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTEXTS = (1024, 32768)
FIXED = 4
"""Draft length drawn beside the best one, to show what not adapting costs."""
Row = dict[str, Any]


def batch_result(
    model: BatchModel,
    alphas: Sequence[float] = (0.8,),
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[int] = CONTEXTS,
    length: int | None = None,
) -> Result:
    """Speedup over batch size; length None: the best draft length at every point."""
    rows: list[Row] = [dict(row) for row in model.table(alphas, batches, contexts, length)]
    for row in rows:
        row["memory_gb"] = row["memory_bytes"] / 1e9
        row["fits"] = "yes" if row["fits_card"] else "no"
        if model.target.num_experts > 1:
            row["distinct_experts"] = _experts(model, row["batch"])
    chosen = "best draft length" if length is None else f"{length} drafts"
    return Result(
        "simulate-batch",
        f"{model.target.name} with {model.draft.name} on {model.card.name}, {chosen}",
        (
            *([Column("alpha", "alpha", ".2f")] if len(alphas) > 1 else []),
            Column("context", "context", ",d"),
            Column("batch", "batch", "d"),
            Column("drafts", "num_speculative_tokens", "d"),
            Column("tokens\nper round", "tokens_per_round", ".2f"),
            Column("verify\nratio", "verify_ratio", ".2f"),
            Column("cost\nratio", "cost_ratio", ".3f"),
            Column("speedup", "speedup", ".2f"),
            Column("memory\nGB", "memory_gb", ",.0f"),
            Column("fits\ncard", "fits"),
        ),
        rows,
        _batch_notes(model),
        lambda figure: _draw_batch(figure, rows, model, length),
        {"constants": constants(model)},
    )


def constants(model: BatchModel) -> dict[str, Any]:
    """Every number that the batch model used, with its source."""
    card, shapes = model.card, (model.target, model.draft)
    return {
        "card": {**vars(card), "tokens_to_compute_bound": card.peak_flops / card.memory_bandwidth},
        "models": [
            {
                **vars(m),
                "active_parameters": m.active_parameters,
                "cache_bytes_per_token": m.cache_bytes_per_token,
            }
            for m in shapes
        ],
        "overhead_seconds": model.overhead_seconds,
        "draft_context": model.draft_context,
    }


def _experts(model: BatchModel, tokens: float) -> float:
    return float(distinct_experts(model.target.num_experts, model.target.experts_per_token, tokens))


def _batch_notes(model: BatchModel) -> list[str]:
    card, target = model.card, model.target
    notes = [
        f"{card.name}: {card.memory_bandwidth / 1e12:.3g} TB/s, "
        f"{card.peak_flops / 1e12:,.4g} TFLOPS, "
        f"{card.memory / 1e9:.0f} GB ({card.source}); compute-bound from "
        f"{card.peak_flops / card.memory_bandwidth:.0f} tokens a pass.",
        *(
            f"{m.name}: {m.num_parameters / 1e9:.3g} B parameters, {m.weight_bytes / 1e9:.3g} GB, "
            f"{m.cache_bytes_per_token / 1e3:.3g} kB of cache a token ({m.source})."
            for m in dict.fromkeys((target, model.draft))
        ),
        (
            f"Assumed: {model.overhead_seconds * 1e3:g} ms a forward pass; peaks reached; "
            "all weights read."
        ),
        (
            "A roofline model, not a measurement. Where memory does not fit one card, read "
            "it as several that share the load."
        ),
    ]
    if target.num_experts > 1:
        times = ", ".join(
            f"{_experts(model, t) / target.experts_per_token:.2f}x at {t}" for t in (2, 4, 8, 64)
        )
        notes.append(
            f"{target.name} reads {target.experts_per_token} of {target.num_experts} "
            f"experts for one token; {times}."
        )
    return notes


def _draw_batch(figure: Figure, rows: Sequence[Row], model: BatchModel, length: int | None) -> None:
    left, right = panels(figure, 2)
    figure.suptitle(f"{model.target.name} with {model.draft.name} on {model.card.name}")
    drafts = FIXED if length is None else length
    groups = list(dict.fromkeys((row["alpha"], row["context"]) for row in rows))
    several = len({alpha for alpha, _ in groups}) > 1
    for style, (alpha, context) in zip(styles(len(groups)), groups, strict=True):
        here = [row for row in rows if (row["alpha"], row["context"]) == (alpha, context)]
        label = f"context {context:,}" + (f", α = {alpha:g}" if several else "")
        batches = [row["batch"] for row in here]
        left.plot(batches, [row["speedup"] for row in here], "-", label=label, **style)
        if length is None:
            always = [model.row(alpha, row["batch"], context, FIXED)["speedup"] for row in here]
            left.plot(batches, always, ":", color=style["color"], linewidth=1.8)
        ratios = [float(model.verify_ratio(row["batch"], context, drafts + 1)) for row in here]
        right.plot(batches, ratios, "-", label=label, **style)
    left.axhline(1, color=BLACK, linewidth=1.4, linestyle="--")
    where = "" if several else f" at α = {groups[0][0]:g}"
    kind = f"Best length (dotted: {FIXED}){where}" if length is None else f"{length} drafts{where}"
    left.set(ylabel="speedup over plain decoding", title=kind, ylim=(0, None))
    right.set(
        ylabel=f"time of {drafts + 1} tokens / time of 1",
        title=f"What verifying {drafts} drafts costs",
        ylim=(0, None),
    )
    ticks = sorted({row["batch"] for row in rows})
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("batch (sequences decoded together)")
        shown = ticks if len(ticks) <= 6 else ticks[:: -(-len(ticks) // 6)]
        axes.set_xticks(shown, [str(tick) for tick in shown])
        axes.minorticks_off()
    left.legend(loc="lower left")


GENERATION_COLUMNS = (
    Column("tokens\nper round", "tokens_per_round", ".3f"),
    Column("std\nof runs", "tokens_std", ".3f"),
    Column("expected", "tokens_expected", ".3f"),
    Column("speedup", "speedup", ".3f"),
    Column("std\nof runs", "speedup_std", ".3f"),
    Column("expected", "speedup_expected", ".3f"),
)


def generation_result(
    rates: Sequence[float],
    length: int,
    total_tokens: int,
    simulations: int,
    draft_ms: float,
    target_ms: float,
    verify_ratio: VerifyCost | None,
    seed: int,
) -> Result:
    """Simulated generations with independent acceptance, beside their exact expectation."""
    times = {"draft_time_ms": draft_ms, "target_time_ms": target_ms, "verify_ratio": verify_ratio}
    counts = {"total_tokens": total_tokens, "num_simulations": simulations, "seed": seed}
    found = sweep(rates, num_draft=length, **counts, **times)  # type: ignore[arg-type]
    rows = [{"alpha": row["rate"], **_common(row, length)} for row in found]
    return Result(
        "simulate-generation",
        (
            f"{simulations} simulated generations of {total_tokens} tokens, {length} drafts, "
            f"{draft_ms:g} and {target_ms:g} ms"
        ),
        (Column("alpha", "alpha", ".2f"), *GENERATION_COLUMNS),
        rows,
        (
            (
                "Expected: exact, with the last round cut at the last token wanted; the "
                "long-run mean lies above it: "
            )
            + ", ".join(f"{float(expected_tokens(rate, length)):.2f}" for rate in rates)
            + " tokens per round.",
        ),
        lambda figure: _draw_generation(figure, rows, "alpha", "acceptance rate α", simulations),
        {**counts, "num_draft": length, "draft_time_ms": draft_ms, "target_time_ms": target_ms},
    )


def process_result(
    process: AcceptanceProcess,
    description: str,
    lengths: Sequence[int],
    total_tokens: int,
    simulations: int,
    draft_ms: float,
    target_ms: float,
    verify_ratio: VerifyCost | None,
    seed: int,
) -> Result:
    """Simulated generations with any acceptance process, over draft lengths."""
    times = {"draft_time_ms": draft_ms, "target_time_ms": target_ms, "verify_ratio": verify_ratio}
    counts = {"total_tokens": total_tokens, "num_simulations": simulations, "seed": seed}
    found = sweep_process(process, lengths, **counts, **times)  # type: ignore[arg-type]
    rows = [
        {
            "alpha": row["draft_acceptance_rate"],
            **_common(row, int(row["num_draft"])),
            "long_run": row["tokens_long_run"],
        }
        for row in found
    ]
    return Result(
        "simulate-generation",
        f"{simulations} simulated generations of {total_tokens} tokens, acceptance {description}",
        (
            Column("drafts", "num_speculative_tokens", "d"),
            Column("accepted /\ndrafted", "alpha", ".3f"),
            Column("tokens\nper round", "tokens_per_round", ".3f"),
            Column("std\nof runs", "tokens_std", ".3f"),
            Column("in the\nlong run", "long_run", ".3f"),
            Column("speedup", "speedup", ".3f"),
            Column("std\nof runs", "speedup_std", ".3f"),
        ),
        rows,
        (
            (
                "alpha here is accepted over drafted tokens; drafts after a rejection count "
                "as drafted, so longer drafts have less."
            ),
        ),
        lambda figure: _draw_generation(
            figure, rows, "num_speculative_tokens", "drafts per round", simulations
        ),
        {**counts, "draft_time_ms": draft_ms, "target_time_ms": target_ms},
    )


def _common(row: Row, length: int) -> Row:
    """A row under the names that scripts rely on."""
    checked_length("num_speculative_tokens", length)
    expected: Row = {key: row[key] for key in ("tokens_expected", "speedup_expected") if key in row}
    spreads = {"tokens_std": row["tokens_std"], "speedup_std": row["speedup_std"]}
    counts = {"num_speculative_tokens": length, "batch": 1}
    return {
        **counts,
        "tokens_per_round": row["tokens_mean"],
        "speedup": row["speedup_mean"],
        **spreads,
        **expected,
    }


def _draw_generation(
    figure: Figure, rows: Sequence[Row], key: str, label: str, simulations: int
) -> None:
    places = [row[key] for row in rows]
    names = (
        ("tokens_per_round", "tokens_std", "tokens_expected"),
        ("speedup", "speedup_std", "speedup_expected"),
    )
    titles = ("Tokens per round", "Speedup over plain decoding")
    for axes, (mean, std, expected), title, color in zip(
        panels(figure, 2), names, titles, COLORS, strict=False
    ):
        error = 3 * np.array([row[std] for row in rows]) / np.sqrt(simulations)
        axes.errorbar(
            places,
            [row[mean] for row in rows],
            error,
            fmt="o",
            color=color,
            capsize=4,
            label="simulated, ± 3 standard errors",
        )
        if expected in rows[0]:
            axes.plot(
                places,
                [row[expected] for row in rows],
                "--",
                color=BLACK,
                linewidth=1.6,
                label="exact expectation",
            )
        axes.set(xlabel=label, ylabel=title.lower(), title=title, ylim=(0, None))
        axes.legend(loc="lower right")
