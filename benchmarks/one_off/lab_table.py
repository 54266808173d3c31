"""The table of the lab's scale-up, from the raw lines that `lab_scale_up.py` wrote: it prints this
when all is measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median
from typing import Any

WORKLOADS = ("code", "chat")
Line = dict[str, Any]


def markdown(options: argparse.Namespace, lines: Sequence[Line]) -> str:
    """The table: alpha, c, what both foretell, and what was measured."""
    steps = next((line for line in lines if line["kind"] == "steps"), None)
    visits = [line for line in lines if line["kind"] == "costs"]
    if steps is None or not visits:
        return "No step is timed yet.\n"
    costs, c = costs_of(visits), median(steps["draft"]) / median(steps["target"])
    where = steps["provenance"]
    curve = ", ".join(f"T({k + 1})/T(1) = {float(costs.curve(k + 1)):.2f}" for k in options.lengths)
    counts = f"{sizes(lines, 'text')} were read, {sizes(lines, 'run')} were run"
    head = [
        "# The lab's scale-up",
        "",
        f"{where['target']}; {where['gpu'] or where['processor']}, {where['threads']} "
        f"threads, {where['dtype']}, "
        f"torch {where['torch']}, transformers {where['transformers']}, commit "
        f"{where['commit']}. {counts}. "
        f"c = {c:.3f} from {len(steps['target'])} cached single-token steps of each model "
        f"({1000 * median(steps['draft']):.1f} and {1000 * median(steps['target']):.1f} "
        f"ms); {curve}.",
        "",
        "Tokens per pass: the formula at alpha, then measured, ours and transformers' "
        "assisted generation. Speedup: the "
        "formula with verification taken as free, with T(k+1) as measured, from the "
        "recorded positions (90% interval); then "
        "measured.",
        "",
        "| T | prompts | answers | alpha | k | tokens/pass foretold | ours | assisted | "
        "speedup, T(k+1) = T(1) "
        "| T(k+1) measured | by position | ours | assisted |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows = [
        row
        for temperature in options.temperature
        for place, name in enumerate(WORKLOADS)
        for row in group_rows(options, lines, temperature, place, name, costs, c)
    ]
    return "\n".join([*head, *rows]) + "\n"


def sizes(lines: Sequence[Line], kind: str) -> str:
    """How many answers of how many tokens there are of this kind."""
    mine = [line for line in lines if line["kind"] == kind and line.get("arm", "plain") == "plain"]
    tokens = max(
        (
            len(line["answer"]) if kind == "text" else sum(n for _, n in line["chunks"])
            for line in mine
        ),
        default=0,
    )
    return f"{len(mine)} answers of {tokens} tokens"


def group_rows(
    options: argparse.Namespace,
    lines: Sequence[Line],
    temperature: float,
    place: int,
    name: str,
    costs: Any,
    c: float,
) -> list[str]:
    """The rows of one workload at one temperature, a line a draft length."""
    from draftproof import expected_speedup, expected_tokens
    from draftproof.plan.plan import mean_overlap
    from draftproof.plan.predict import Recorded, predict

    mine = range(place * options.prompts, (place + 1) * options.prompts)
    here = [line for line in lines if line["temperature"] == temperature]
    runs = [line for line in here if line["kind"] == "run" and line["number"] in mine]
    traces = traces_of(
        options, [line for line in here if line["kind"] == "text" and line["prompt"] in mine]
    )
    if not runs:
        return []
    alpha, rows = mean_overlap(traces), []
    plain = seconds_a_token([line for line in runs if line["arm"] == "plain"])
    for k in sorted(options.lengths):
        arms = [
            [line for line in runs if (line["arm"], line["k"]) == (arm, k)]
            for arm in ("ours", "transformers")
        ]
        tokens = [
            f"{sum(n for line in arm for _, n in line['chunks']) / rounds_of(arm):.2f}"
            if arm
            else ""
            for arm in arms
        ]
        speeds = [f"{plain / seconds_a_token(arm):.2f}" if arm else "" for arm in arms]
        if not traces:
            rows.append(
                f"| {temperature:g} | {name} | 0 | | {k} | | {' | '.join(tokens)} | | | "
                f"| {' | '.join(speeds)} |"
            )
            continue
        verify = float(costs.curve(k + 1))
        speed = predict("", "", Recorded(traces, range(len(traces))), k, costs, alpha.point).speedup
        formulas = [float(expected_speedup(alpha.point, k, c, ratio)) for ratio in (1.0, verify)]
        rows.append(
            f"| {temperature:g} | {name} | {len(traces)} | {alpha.point:.2f} "
            f"({alpha.low:.2f}-{alpha.high:.2f}) | {k} "
            f"| {float(expected_tokens(alpha.point, k)):.2f} | {' | '.join(tokens)} | "
            f"{formulas[0]:.2f} | {formulas[1]:.2f} "
            f"| {speed.point:.2f} ({speed.low:.2f}-{speed.high:.2f}) | {' | '.join(speeds)} |"
        )
    return rows


def traces_of(options: argparse.Namespace, texts: Sequence[Line]) -> list[Any]:
    """A trace a text; with acceptance by chance one that is alike everywhere."""
    import numpy as np

    from draftproof.plan.rounds import trace_of_coins

    longest = max(options.lengths)
    if options.synthetic is not None:
        same = np.full(options.tokens, options.synthetic)
        return [trace_of_coins(same, same, longest)] * options.measured
    return [trace_of_coins(line["coins"], line["overlaps"], longest) for line in texts]


def costs_of(visits: Sequence[Line]) -> Any:
    """All visits as plan's costs; what lies outside forwards is the median of each part."""
    from draftproof.costs.outside_passes import Outside
    from draftproof.costs.pass_timer import PassTimes
    from draftproof.costs.timings import Timings

    times = [
        PassTimes(
            line["context"],
            {int(n): tuple(t) for n, t in line["target"].items()},
            {1: tuple(line["draft"]), 2: tuple(line["draft_pairs"])},
        )
        for line in visits
    ]
    return Timings(
        tuple(times),
        Outside(
            *(median(v["outside"][part] for v in visits) for part in ("fixed", "each", "plain"))
        ),
    )


def seconds_a_token(runs: Sequence[Line]) -> float:
    """After the first chunk, all prompts together."""
    seconds = sum(line["chunks"][-1][0] - line["chunks"][0][0] for line in runs)
    return float(seconds / sum(n for line in runs for _, n in line["chunks"][1:]))


def rounds_of(runs: Sequence[Line]) -> int:
    return int(sum(line["num_rounds"] for line in runs))
