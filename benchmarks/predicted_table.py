"""The table of predicted against measured speedup, from the raw lines that
`predicted_vs_measured.py` wrote.

    python benchmarks/predicted_table.py raw.jsonl [more.jsonl] --out table.md

Predictions are made here, by the functions that `draftproof plan` uses, from the `text` and `costs`
lines alone; `run` lines are what they are compared with. A change of the method thus needs no new
measurement, and cannot see one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from predicted_work import Line
from raw_lines import read

CELLS, LONGEST = 48, 8


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="raw lines")
    parser.add_argument("--out", type=Path, help="write the table here instead of printing it")
    options = parser.parse_args(argv)
    text = markdown(cells([line for path in options.files for line in read(path)]))
    if options.out is None:
        print(text, end="")
    else:
        options.out.write_text(text, encoding="utf-8")
    return 0


def cells(lines: list[Line]) -> list[Line]:
    """One cell a group and draft length, from every group that has texts, costs and runs."""
    from draftproof.costs.timings import Timings
    from draftproof.plan.plan import mean_overlap
    from draftproof.plan.predict import Recorded, predict

    found = []
    for pair, workload, temperature in dict.fromkeys(
        group_of(line) for line in lines if line["kind"] == "run"
    ):
        mine = [line for line in lines if group_of(line) == (pair, workload, temperature)]
        runs = [line for line in mine if line["kind"] == "run"]
        prompts = {line["prompt"] for line in runs}
        texts = [line for line in mine if line["kind"] == "text" and line["of_prompt"] in prompts]
        visits = [line for line in lines if line["kind"] == "costs" and line["pair"] == pair]
        tried = [line for line in visits if line["temperature"] == temperature and line["rounds"]]
        if not texts or not tried:
            continue
        costs = Timings(tuple(visit_of(line) for line in visits), outside_of(tried))
        traces = [trace_of(line) for line in texts]
        recorded = Recorded(traces, [line["of_prompt"] for line in texts])
        group = []
        for k in sorted(int(name[2:]) for name in {line["arm"] for line in runs} - {"plain"}):
            choice = predict("", pair, recorded, k, costs, mean_overlap(traces).point)
            about = {
                "pair": pair,
                "workload": workload,
                "temperature": temperature,
                "prompts": len(prompts),
            }
            group.append(about | compared(choice, runs, k) | {"where": visits[0]["provenance"]})
        paying = [cell for cell in group if cell["low"] >= 1]
        if paying:  # one recommendation a group, as `plan` makes it
            max(paying, key=lambda cell: cell["predicted"])["recommended"] = True
        found += group
    return found


def group_of(line: Line) -> tuple[str, str, float]:
    return line["pair"], line["workload"], line["temperature"]


def compared(choice: Any, runs: list[Line], k: int) -> Line:
    """What was foretold for k drafts beside what was measured after the first chunk, all prompts
    together."""
    mine, plain = ([line for line in runs if line["arm"] == name] for name in (f"k={k}", "plain"))
    rounds = [r for line in mine for r in line["rounds"]]
    return {
        "k": k,
        "predicted": choice.speedup.point,
        "low": choice.speedup.low,
        "high": choice.speedup.high,
        "iid": choice.iid_speedup,
        "measured": seconds_a_token(plain) / seconds_a_token(mine),
        "predicted_tokens_per_round": choice.tokens_per_round,
        "measured_tokens_per_round": sum(r[2] for r in rounds) / len(rounds),
        "recommended": False,
    }


def seconds_a_token(runs: list[Line]) -> float:
    seconds, tokens = 0.0, 0
    for line in runs:
        seconds += line["chunks"][-1][0] - line["chunks"][0][0]
        tokens += sum(count for _, count in line["chunks"][1:])
    return seconds / tokens


def draft_times(line: Line) -> dict[int, tuple[float, ...]]:
    """Tokens in a pass of the draft model -> its times; older lines have single tokens only."""
    times = {1: tuple(line["draft"]), 2: tuple(line.get("draft_pairs", ()))}
    return {n: found for n, found in times.items() if found}


def visit_of(line: Line) -> Any:
    from draftproof.costs.pass_timer import PassTimes

    target = {int(n): tuple(times) for n, times in line["target"].items()}
    return PassTimes(
        line["context"],
        target,
        draft_times(line),
    )


def outside_of(lines: list[Line]) -> Any:
    """The loop around the passes, from the tried rounds of these costs lines; see `round_line`."""
    from draftproof.costs.outside_passes import fit_outside

    plain = [r[6] for line in lines for r in line["rounds"]["plain"] if not r[7]]
    tried = [
        r
        for line in lines
        for name, rounds in line["rounds"].items()
        if name != "plain"
        for r in rounds
        if not r[7]
    ]
    return fit_outside(plain, [(r[0], r[6] + r[3] - r[4]) for r in tried])


def trace_of(line: Line) -> Any:
    """The trace that a text line records."""
    import numpy as np

    from draftproof.plan.rounds import Trace, trace_of_coins

    if "coins" in line:
        return trace_of_coins(line["coins"], line["overlaps"], LONGEST)
    hits, drafted = np.asarray(line["hits"]), np.asarray(line["drafted"])
    accept = (np.arange(LONGEST) < hits[:, None]).astype(float)
    return Trace(accept, drafted, np.where(drafted > 0, (hits > 0).astype(float), np.nan))


def row(cell: Line) -> str:
    inside = cell["low"] <= cell["measured"] <= cell["high"]
    error = cell["predicted"] / cell["measured"] - 1
    return (
        f"| {cell['pair']} | {cell['workload']} | {cell['temperature']:g} | {cell['k']} "
        f"| {cell['prompts']} "
        f"| {cell['predicted']:.2f} ({cell['low']:.2f}-{cell['high']:.2f}) | "
        f"{cell['iid']:.2f} | {cell['measured']:.2f} "
        f"| {cell['predicted_tokens_per_round']:.2f} / "
        f"{cell['measured_tokens_per_round']:.2f} | {error:+.0%} "
        f"| {'yes' if inside else 'no'} | {'best' if cell['recommended'] else ''} |"
    )


def markdown(cells: list[Line]) -> str:
    """The table and the counts it is judged by."""
    if not cells:
        return "No cell is measured yet.\n"
    inside = sum(c["low"] <= c["measured"] <= c["high"] for c in cells)
    near = sum(abs(c["predicted"] / c["measured"] - 1) <= 0.10 for c in cells)
    narrow = sum((c["high"] - c["low"]) / 2 <= 0.15 * c["predicted"] for c in cells)
    wrong = [c for c in cells if c["recommended"] and c["measured"] < 0.97]
    where = cells[-1]["where"]
    head = [
        "# Predicted against measured",
        "",
        f"{len(cells)} of {CELLS} cells, 48 tokens a prompt. Speedup after the first "
        "round, all prompts of a cell together, "
        "one run; the interval is the plan's, nominal 90%.",
        "",
        f"- the interval holds the measured speedup in {inside} of {len(cells)} cells",
        f"- the point is within 10% in {near} of {len(cells)}",
        f"- half the interval is at most 15% of the point in {narrow} of {len(cells)}",
        f"- recommended arms measured more than 3% slower than plain decoding: {len(wrong)}",
        "",
        (
            f"{where['processor']}, {where['threads']} threads, {where['dtype']}, torch "
            f"{where['torch']}."
        ),
        "",
        "| pair | workload | T | k | prompts | predicted | i.i.d. | measured "
        "| tokens/round predicted / measured | error | inside | |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(row(cell) for cell in cells)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
