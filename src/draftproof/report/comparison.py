"""Several results of plan and bench held against each other: what was foretold beside what was
measured, and runs side by side.

Works on the documents alone, as their files hold them; results that have nothing in common bring no
table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from draftproof.core.tree import tree_text
from draftproof.report.figures import BLACK, heighten, styles, top_of
from draftproof.report.result import Column, Result, short_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Named = tuple[str, Mapping[str, Any]]
BENCH, PLAN = "draftproof.bench", "draftproof.plan"
FREE = ("num_speculative_tokens", "tree", "costs")
"""Keys of a configuration that do not belong to the drafter: its length and shape are compared
apart."""
TOLD = (
    "target",
    "draft",
    "dtype",
    "device",
    "gpu",
    "processor",
    "threads",
    "commit",
    "torch",
    "transformers",
)
"""What results may differ by, told under their table."""


def comparisons(documents: Sequence[Named]) -> list[Result]:
    """The tables that hold these results against each other; none where there is nothing to
    hold."""
    found = (foretold_result(documents), measured_result(documents))
    return [result for result in found if result is not None]


def foretold_result(documents: Sequence[Named]) -> Result | None:
    """Every arm of a bench that a plan foretold for the same target and sampling, with both
    figures; None without any."""
    rows = [
        _foretold_row(choice, arm, plan, bench)
        for plan, bench in _pairs(documents)
        for choice, arm in _matches(plan[1], bench[1])
    ]
    if not rows:
        return None
    columns = (
        Column("drafter", "drafter"),
        Column("drafts", "drafts"),
        Column("tokens/round\nforetold", "foretold_tokens", ".2f"),
        Column("\nmeasured", "measured_tokens", ".2f"),
        Column("speedup\nforetold", "foretold"),
        Column("\nmeasured", "measured", ".2f"),
        Column("\ndifference", "difference"),
        Column("inside the\ninterval", "inside"),
        Column("results", "results"),
    )
    inside = sum(row["inside"] == "yes" for row in rows)
    notes = [
        (
            f"{inside} of {len(rows)} measured speedups lie in the interval that was "
            "foretold for them, nominally 90%"
        ),
        "measured: after the first chunk, all prompts together, which is what plan foretells",
    ]
    return Result("foretold", "Foretold and measured", columns, rows, notes, _foretold_drawer(rows))


def _pairs(documents: Sequence[Named]) -> Iterator[tuple[Named, Named]]:
    """Plans and benches of one target under the same temperature."""
    for plan in documents:
        for bench in documents:
            if (plan[1]["format"], bench[1]["format"]) == (PLAN, BENCH) and _setting(
                plan[1]
            ) == _setting(bench[1]):
                yield plan, bench


def _setting(document: Mapping[str, Any]) -> tuple[Any, ...]:
    where, params = document["provenance"], document["params"]
    return (
        where.get("target"),
        where.get("dtype"),
        where.get("device"),
        params.get("temperature"),
        params.get("top_p"),
    )


def _matches(
    plan: Mapping[str, Any], bench: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    drafters = {drafter["drafter"]: drafter.get("config") for drafter in plan["drafters"]}
    for choice in plan["choices"]:
        mine = _identity(
            drafters[choice["drafter"]], choice["num_speculative_tokens"], choice.get("tree")
        )
        for arm in bench["arms"]:
            config = arm.get("config")
            if config and mine == _identity(
                config, config["num_speculative_tokens"], config.get("tree")
            ):
                yield choice, arm


def _identity(
    config: Mapping[str, Any] | None, length: int, tree: Sequence[int] | None
) -> tuple[Any, ...] | None:
    if config is None:
        return None
    return (
        {key: value for key, value in config.items() if key not in FREE},
        length,
        None if tree is None else list(tree),
    )


def _foretold_row(
    choice: Mapping[str, Any], arm: Mapping[str, Any], plan: Named, bench: Named
) -> dict[str, Any]:
    speed, measured = choice["speedup"], arm.get("decode_ratio_of_totals")
    known = measured is not None
    return {
        "drafter": short_name(choice["drafter"]),
        "drafts": choice["num_speculative_tokens"]
        if choice.get("tree") is None
        else f"tree {tree_text(choice['tree'])}",
        "foretold_tokens": choice["tokens_per_round"],
        "measured_tokens": arm["stats"].get("tokens_per_round"),
        "foretold": f"{speed['point']:.2f} ({speed['low']:.2f}-{speed['high']:.2f})",
        "measured": measured,
        "difference": f"{speed['point'] / measured - 1:+.0%}" if known else "",
        "inside": "" if not known else "yes" if speed["low"] <= measured <= speed["high"] else "no",
        "results": f"{plan[0]}, {bench[0]}",
        "speedup": speed,
    }


def _foretold_drawer(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Foretold against measured, with the intervals and the line on which both agree."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        known = [row for row in rows if row["measured"] is not None]
        names = list(dict.fromkeys(row["drafter"] for row in known))
        for style, name in zip(styles(len(names)), names, strict=True):
            mine = [row for row in known if row["drafter"] == name]
            points = [row["speedup"]["point"] for row in mine]
            reach = [[row["speedup"]["point"] - row["speedup"]["low"] for row in mine]]
            reach.append([row["speedup"]["high"] - row["speedup"]["point"] for row in mine])
            places = [row["measured"] for row in mine]
            axes.errorbar(
                places, points, yerr=reach, linestyle="none", capsize=4, label=name, **style
            )
        top = max(
            [top_of(row["speedup"] for row in known), *(1.08 * row["measured"] for row in known)]
        )
        axes.plot([0, top], [0, top], color=BLACK, linestyle="--", linewidth=1.4)
        axes.set_xlim(0, top)
        axes.set_ylim(0, top)
        axes.set_xlabel("measured speedup")
        axes.set_ylabel("foretold speedup (dashed: equal)")
        if known:
            axes.legend()

    return draw


def measured_result(documents: Sequence[Named]) -> Result | None:
    """The arms of two or more benches, equal names next to each other; None with fewer benches."""
    benches = [(name, data) for name, data in documents if data["format"] == BENCH]
    if len(benches) < 2:
        return None
    names = list(dict.fromkeys(arm["name"] for _, data in benches for arm in data["arms"]))
    rows = [
        _measured_row(arm, result)
        for name in names
        for result, data in benches
        for arm in data["arms"]
        if arm["name"] == name
    ]
    columns = (
        Column("arm", "name"),
        Column("result", "result"),
        Column("tok/s", "rate", ".1f"),
        Column("tokens\n/round", "tokens", ".2f"),
        Column("accept-\nance", "acceptance", ".2f"),
        Column("vs plain", "ratio"),
    )
    return Result(
        "measured",
        "Measured side by side",
        columns,
        rows,
        differing(benches),
        _measured_drawer(rows),
    )


def _measured_row(arm: Mapping[str, Any], result: str) -> dict[str, Any]:
    ratio = arm["ratio_to_plain"]
    return {
        "name": arm["name"],
        "result": result,
        "rate": arm["tokens_per_second"],
        "tokens": arm["stats"].get("tokens_per_round"),
        "acceptance": arm["stats"].get("draft_acceptance_rate"),
        "ratio": f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})" if ratio else "",
        "interval": ratio,
    }


def differing(benches: Sequence[Named]) -> list[str]:
    """In what the results differ besides their figures, one sentence each."""
    said = []
    about = [
        (
            name,
            {key: data["provenance"].get(key) for key in TOLD}
            | dict(data["params"])
            | {"prompts": _prompts(data)},
        )
        for name, data in benches
    ]
    for key in dict.fromkeys(key for _, values in about for key in values):
        values = [(name, found.get(key)) for name, found in about]
        if any(value != values[0][1] for _, value in values):
            shown = "; ".join(
                f"{name} has {'none' if value is None else value}" for name, value in values
            )
            said.append(f"they differ in {key}: {shown}")
    return said or [
        "they differ in nothing that was recorded of models, machine, sampling and prompts"
    ]


def _prompts(data: Mapping[str, Any]) -> str:
    kinds = ", ".join(dict.fromkeys(prompt["workload"] for prompt in data["prompts"]))
    return f"{len(data['prompts'])} ({kinds})"


def _measured_drawer(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Every arm's ratio to plain, a colour and a marker a result."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        known = [row for row in rows if row["interval"]]
        names = list(dict.fromkeys(row["name"] for row in known))
        results = list(dict.fromkeys(row["result"] for row in known))
        heighten(figure, round(len(names) * max(1.0, len(results) / 2)))
        for number, (result, style) in enumerate(zip(results, styles(len(results)), strict=True)):
            mine = [row for row in known if row["result"] == result]
            places = [
                len(names)
                - 1
                - names.index(row["name"])
                - 0.5 * (number + 0.5) / len(results)
                + 0.25
                for row in mine
            ]
            medians = [row["interval"]["median"] for row in mine]
            reach = [[row["interval"]["median"] - row["interval"]["low"] for row in mine]]
            reach.append([row["interval"]["high"] - row["interval"]["median"] for row in mine])
            axes.errorbar(
                medians, places, xerr=reach, linestyle="none", capsize=4, label=result, **style
            )
        axes.axvline(1, color=BLACK, linestyle="--", linewidth=1.4)
        axes.set_yticks(range(len(names)), names[::-1])
        axes.set_xlabel("speed over plain decoding (1 = break even)")
        axes.set_xlim(left=0)
        if known:
            axes.legend()

    return draw
