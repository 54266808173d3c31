"""A plan as JSON, as a table of 80 columns, and as a page with its plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from draftproof.core.tree import tree_text
from draftproof.decode.record import params_as_dict
from draftproof.decode.schedule import KEY
from draftproof.plan.advice import (
    headline,
    notes,
    scheduled_config,
    scheduled_headline,
    speculative_config,
    vllm_note,
)
from draftproof.plan.plan import Foretold, Plan, choice_as_dict
from draftproof.plan.schedule import by_batch
from draftproof.report.figures import BLACK, looks, panels, top_of
from draftproof.report.result import Column, Result, short_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = (
    Column("drafter", "drafter"),
    Column("drafts", "drafts"),
    Column("alpha", "alpha", ".2f"),
    Column("tokens\n/round", "tokens_per_round", ".2f"),
    Column("speedup", "speedup"),
    Column("i.i.d.\nformula", "iid_speedup", ".2f"),
    Column("", "mark"),
)
BINS = 20


def plan_document(plan: Plan, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Everything for JSON: the choices, the fastest first; per drafter what they come from."""
    top = plan.best or plan.choices[0]
    leading = plan.of(top)
    chosen = None if plan.best is None else speculative_config(leading.candidate.config, top)
    said = {
        "headline": headline(plan),
        "notes": notes(plan),
        "by_batch": None,
        "speculative_config": chosen,
    }
    return {
        "format": "draftproof.plan",
        "version": 1,
        **(said if not plan.larger else said | _by_batch(plan)),
        "batch": plan.batch,
        "alpha": {
            "mean": leading.alpha.point,
            "low": leading.alpha.low,
            "high": leading.alpha.high,
        },
        "cost_ratio": leading.costs.cost_ratio,
        "verify_ratio": _curve(leading),
        "verify_curves": [
            {
                "context": context,
                "ratios": {str(n): float(curve(n)) for n in range(1, curve.tokens[-1] + 1)},
            }
            for context, curve in plan.verify.items()
        ],
        "choices": [choice_as_dict(choice) for choice in plan.choices],
        "best": None if plan.best is None else choice_as_dict(plan.best),
        "drafters": [drafter_as_dict(drafter) for drafter in plan.drafters],
        "prompts": [
            {
                "workload": p.item.workload,
                "where": p.item.where,
                "num_tokens": len(t.prompt),
                "answer_tokens": len(t.answer),
            }
            for p, t in zip(plan.prompts, plan.texts, strict=True)
        ],
        "params": params_as_dict(plan.params),
        "provenance": dict(provenance),
    }


def _by_batch(plan: Plan) -> dict[str, Any]:
    """What several batch sizes say, in place of what the first alone would."""
    plans = [plan, *plan.larger]
    found = by_batch({p.batch: [choice_as_dict(choice) for choice in p.choices] for p in plans})
    drafter = next(d for d in plan.drafters if d.candidate.name == found["drafter"])
    config = scheduled_config(drafter.candidate.config, found[KEY])
    note = vllm_note(drafter.candidate.config, scheduled=True) if config else None
    return {
        "headline": scheduled_headline(found, drafter.candidate.short),
        "notes": [*notes(plan), *([note] if note else [])],
        "by_batch": found | {"verify_ratio": {str(p.batch): _curve(p.drafters[0]) for p in plans}},
        "speculative_config": config,
    }


def drafter_as_dict(drafter: Foretold) -> dict[str, Any]:
    """One drafter: acceptance, costs, and the overlaps themselves."""
    costs, outside = drafter.costs, drafter.costs.outside
    return {
        "drafter": drafter.candidate.name,
        "method": drafter.candidate.config.method,
        "config": drafter.candidate.config.as_dict(),
        "alpha": {
            "mean": drafter.alpha.point,
            "low": drafter.alpha.low,
            "high": drafter.alpha.high,
        },
        "alpha_by_position": list(drafter.by_position),
        "alpha_by_workload": dict(drafter.by_workload),
        "autocorrelation": drafter.autocorrelation,
        "share_of_positions_with_draft": drafter.share_drafted,
        "cost_ratio": drafter.costs.cost_ratio,
        "verify_ratio": _curve(drafter),
        "context": costs.context,
        "batch": costs.batch,
        "target_step_ms": 1000 * drafter.costs.target_step,
        "draft_step_ms": 1000 * drafter.costs.draft_step,
        "outside_ms": {
            "fixed": 1000 * outside.fixed,
            "each_draft": 1000 * outside.each,
            "plain": 1000 * outside.plain,
        },
        "spread": costs.spread(),
        "drift": costs.drift(),
        "pass_seconds": {str(n): list(times) for n, times in costs.times.items()},
        "overlaps": [
            [round(float(x), 6) if np.isfinite(x) else None for x in t.overlaps]
            for t in drafter.traces
        ],
    }


def _curve(drafter: Foretold) -> dict[str, float]:
    """T(n) / T(1) for every n up to the longest measured."""
    curve = drafter.costs.curve
    return {str(n): float(curve(n)) for n in range(1, curve.tokens[-1] + 1)}


def plan_result(data: Mapping[str, Any]) -> Result:
    """The table: each drafter's three best lengths and its trees, the best marked; notes under it;
    the speedup figure."""
    rows: list[dict[str, Any]] = []
    alphas = {d["drafter"]: d["alpha"]["mean"] for d in data["drafters"]}
    for name, alpha in alphas.items():
        own = [c for c in data["choices"] if c["drafter"] == name]
        mine = [c for c in own if c.get("tree") is None][:3] + [
            c for c in own if c.get("tree") is not None
        ]
        rows += [
            _row(choice, alpha, data["best"])
            for choice in sorted(mine, key=lambda c: c["num_speculative_tokens"])
        ]
    return Result("plan", data["headline"], COLUMNS, rows, data["notes"], speedup_drawer(data))


def batch_result(data: Mapping[str, Any]) -> Result:
    """The length to use at each batch size; a figure of what it brings."""
    found = data["by_batch"]
    columns = (
        Column("drafter", "drafter"),
        Column("batch", "batch", "d"),
        Column("drafts", "drafts"),
        Column("tokens\n/round", "tokens_per_round", ".2f"),
        Column("speedup", "speedup"),
        Column("verifying\ncosts", "verify", ".2f"),
    )
    rows = []
    order = [drafter["drafter"] for drafter in data["drafters"]]
    for row in sorted(found["rows"], key=lambda row: order.index(row["drafter"])):
        curve, length = found["verify_ratio"][str(row["batch"])], row["num_speculative_tokens"]
        speed = row["speedup"]
        shown = {
            "drafts": str(length) if length else "none",
            "speedup": _speed(speed) if length else f"at best {speed['point']:.2f}",
            "tokens_per_round": row["tokens_per_round"] if length else None,
            "verify": curve.get(str(length + 1)) if length else None,
        }
        rows.append({**row, **shown, "drafter": short_name(row["drafter"])})
    notes = (
        (
            "verifying costs: a pass over the drafts and one token more, over a pass of one "
            "token, at that batch size"
        ),
        (
            "a batch between two sizes takes the length of the larger; chosen: "
            f"{short_name(found['drafter'])}, {found[KEY]}"
        ),
    )
    return Result("by_batch", "By batch size", columns, rows, notes, batch_drawer(data))


def _speed(speed: Mapping[str, float]) -> str:
    """A point alone where nothing was measured, else with its interval."""
    known = speed["low"] < speed["high"]
    return f"{speed['point']:.2f}" + (f" ({speed['low']:.2f}-{speed['high']:.2f})" if known else "")


def _drafts(choice: Mapping[str, Any]) -> int | str:
    if choice.get("tree") is not None:
        return tree_text(choice["tree"])
    length: int = choice["num_speculative_tokens"]
    return f"up to {length}" if choice.get("chosen") else length


def _row(choice: Mapping[str, Any], alpha: float, best: Mapping[str, Any] | None) -> dict[str, Any]:
    speed = choice["speedup"]
    return {
        "drafter": short_name(choice["drafter"]),
        "drafts": _drafts(choice),
        "alpha": alpha,
        "tokens_per_round": choice["tokens_per_round"],
        "speedup": _speed(speed),
        "iid_speedup": choice["iid_speedup"],
        "mark": "best" if best == choice else "",
    }


def cost_result(data: Mapping[str, Any]) -> Result:
    """Costs by drafter, with the verify curve as figure."""
    columns = (
        Column("drafter", "drafter"),
        Column("context", "context", "d"),
        Column("target step\nms", "target_step_ms", ".1f"),
        Column("draft step\nms", "draft_step_ms", ".1f"),
        Column("cost ratio", "cost_ratio", ".3f"),
        Column("outside\nms/round", "outside", ".2f"),
    )
    rows = [
        {**d, "drafter": short_name(d["drafter"]), "outside": d.get("outside_ms", {}).get("fixed")}
        for d in data["drafters"]
    ]
    notes = [_verify_note(curve) for curve in data.get("verify_curves", ())]
    return Result("costs", "Costs on this machine", columns, rows, notes, verify_drawer(data))


def _verify_note(curve: Mapping[str, Any]) -> str:
    """One curve in a sentence: what passes of a few lengths cost."""
    ratios = {int(n): ratio for n, ratio in curve["ratios"].items()}
    said = ", ".join(f"{n}: {ratios[n]:.2f}" for n in (2, 3, 5, 9, 17, 32) if n in ratios)
    return (
        f"behind {curve['context']} tokens, a target pass over so many tokens costs so many "
        f"single steps: {said}"
    )


def overlap_result(data: Mapping[str, Any]) -> Result:
    """Acceptance by workload, with the histogram of overlaps as figure."""
    workloads = list(dict.fromkeys(p["workload"] for p in data["prompts"]))
    columns = [
        Column("drafter", "drafter"),
        *(Column(name, f"workload {name}", ".2f") for name in workloads),
    ]
    columns.append(Column("correlation\nof neighbours", "autocorrelation", ".2f"))
    rows = [
        {f"workload {name}": mean for name, mean in d["alpha_by_workload"].items()}
        | {"drafter": short_name(d["drafter"]), "autocorrelation": d["autocorrelation"]}
        for d in data["drafters"]
    ]
    return Result("overlaps", "Mean overlap by workload", columns, rows, (), overlap_drawer(data))


def sections(data: Mapping[str, Any]) -> Sequence[Result]:
    """What a page shows of a plan."""
    batches = [batch_result(data)] if data.get("by_batch") else []
    return [plan_result(data), *batches, overlap_result(data), cost_result(data)]


def _drawn(data: Mapping[str, Any]) -> list[tuple[dict[str, Any], Any]]:
    """Every drafter with the look of its lines."""
    return list(zip(looks(len(data["drafters"])), data["drafters"], strict=True))


def speedup_drawer(data: Mapping[str, Any]) -> Any:
    """Speedup against draft length, a line a drafter, with the break-even line."""

    trees = any(c.get("tree") is not None for c in data["choices"])

    def draw(figure: Figure) -> None:
        from matplotlib.ticker import MaxNLocator

        axes = figure.subplots()
        for look, drafter in _drawn(data):
            mine = sorted(
                (
                    c
                    for c in data["choices"]
                    if c["drafter"] == drafter["drafter"] and c.get("tree") is None
                ),
                key=lambda c: c["num_speculative_tokens"],
            )
            lengths = [c["num_speculative_tokens"] for c in mine]
            speeds = [c["speedup"] for c in mine]
            axes.plot(
                lengths, [s["point"] for s in speeds], **look, label=short_name(drafter["drafter"])
            )
            axes.fill_between(
                lengths,
                [s["low"] for s in speeds],
                [s["high"] for s in speeds],
                color=look["color"],
                alpha=0.15,
            )
            formula = [np.nan if c["iid_speedup"] is None else c["iid_speedup"] for c in mine]
            axes.plot(lengths, formula, ":", color=look["color"], linewidth=1.4)
            for tree in (
                c
                for c in data["choices"]
                if c["drafter"] == drafter["drafter"] and c.get("tree") is not None
            ):
                axes.plot(
                    [tree["num_speculative_tokens"]],
                    [tree["speedup"]["point"]],
                    "^",
                    color=look["color"],
                    markersize=10,
                )
        axes.axhline(1, color=BLACK, linestyle="--", linewidth=1.4)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(
            "drafts a round (triangles: levels of a tree)" if trees else "drafts a round"
        )
        axes.set_ylabel("speedup (dashed: break even, dotted: i.i.d.)")
        axes.set_ylim(
            0,
            top_of(
                (c["speedup"] for c in data["choices"]),
                (c["iid_speedup"] or 0.0 for c in data["choices"]),
            ),
        )
        axes.legend()

    return draw


def batch_drawer(data: Mapping[str, Any]) -> Any:
    """Speedup of each drafter's best length against the batch size, with its interval and the
    break-even line."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        rows = data["by_batch"]["rows"]
        for look, drafter in _drawn(data):
            name = drafter["drafter"]
            mine = [row for row in rows if row["drafter"] == name]
            sizes, speeds = [row["batch"] for row in mine], [row["speedup"] for row in mine]
            axes.plot(sizes, [s["point"] for s in speeds], **look, label=short_name(name))
            axes.fill_between(
                sizes,
                [s["low"] for s in speeds],
                [s["high"] for s in speeds],
                color=look["color"],
                alpha=0.15,
            )
        axes.axhline(1, color=BLACK, linestyle="--", linewidth=1.4)
        axes.set_xscale("log", base=2)
        sizes = sorted({row["batch"] for row in rows})
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("sequences in a batch")
        axes.set_ylabel("speedup at the best length (dashed: break even)")
        axes.set_ylim(0, top_of(row["speedup"] for row in rows))
        axes.legend()

    return draw


def overlap_drawer(data: Mapping[str, Any]) -> Any:
    """Histogram of overlaps and their mean along the answer."""

    def draw(figure: Figure) -> None:
        left, right = panels(figure, 2)
        for look, drafter in _drawn(data):
            flat = [x for row in drafter["overlaps"] for x in row if x is not None]
            if flat:
                left.hist(
                    flat,
                    bins=BINS,
                    range=(0, 1),
                    histtype="step",
                    linewidth=look["linewidth"],
                    color=look["color"],
                    density=True,
                )
            places = [
                (i + 1, x) for i, x in enumerate(drafter["alpha_by_position"]) if x is not None
            ]
            label = short_name(drafter["drafter"])
            right.plot([p for p, _ in places], [x for _, x in places], **look, label=label)
        left.set_xlabel("overlap of target and draft law")
        left.set_ylabel("density")
        right.set_xlabel("eighth of the longest answer")
        right.set_ylabel("mean overlap")
        right.set_ylim(0, 1)
        right.legend()

    return draw


def verify_drawer(data: Mapping[str, Any]) -> Any:
    """T(n) / T(1), measured, with the quartiles of the repeats."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for look, drafter in _drawn(data):
            times = {int(n): t for n, t in drafter["pass_seconds"].items()}
            if not times:
                continue
            base = median(times[1])
            lengths = sorted(times)
            quartiles = [np.percentile(times[n], [25, 50, 75]) / base for n in lengths]
            axes.plot(
                lengths, [q[1] for q in quartiles], **look, label=short_name(drafter["drafter"])
            )
            axes.fill_between(
                lengths,
                [q[0] for q in quartiles],
                [q[2] for q in quartiles],
                color=look["color"],
                alpha=0.15,
            )
        for dashes, curve in zip(("--", ":"), data.get("verify_curves", ()), strict=False):
            ratios = {int(n): ratio for n, ratio in curve["ratios"].items()}
            label = f"behind {curve['context']} tokens"
            axes.plot(
                list(ratios), list(ratios.values()), dashes, color=BLACK, linewidth=1.2, label=label
            )
        axes.set_xlabel("tokens in a target pass")
        axes.set_ylabel("time over a pass of one token")
        axes.set_ylim(bottom=0)
        axes.legend()

    return draw
