"""How many tokens the black box needs for each fault, and how often it calls an exact engine not
exact.

    python benchmarks/audit_power.py --out power.jsonl [--streams 16] [--runs 1000] [--only
        power|level] [--engine NAME]

A raw line a stream, or an exact engine; the table is printed from them. Power: each fault over the
3-token chain and over 1,000 tokens, at a grid of sizes 26% apart; `battery` is the whole battery at
that size, Bonferroni over all its tests at level 1e-3, and `bets` the anytime-valid bets alone, at
the size where they were won. Level: runs of exact engines, at levels 1e-3 and 0.05.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from raw_lines import read_if_there

from draftproof.audit.black_box.evidence import Evidence
from draftproof.audit.black_box.self_test import (
    ALLOWED,
    EASY_LEVEL,
    LEVEL,
    NEEDED,
    chains,
    evidence_of,
)
from draftproof.audit.black_box.toys import EXACT, FAULTY, Chain, Engine
from draftproof.audit.verdict import significant

GRID = [round(50 * 1.26**step) for step in range(27)]
MOST = 10_000
"""Tokens of a stream at most."""
ENOUGH = 3
"""A stream that is found at so many sizes in a row is found at all larger ones."""
LEVEL_TOKENS = {"3 tokens": (200,), "1,000 tokens": (100,)}


def power(streams: int, only: str | None) -> Iterator[dict[str, Any]]:
    """A line for each fault, model and stream: the sizes at which it was found."""
    for model, chain in chains().items():
        for name, engine in FAULTY.items():
            if only not in (None, name):
                continue
            for stream in range(streams):
                sizes, won = _sizes(chain, engine, np.random.default_rng([1, stream]))
                yield {
                    "kind": "power",
                    "model": model,
                    "engine": name,
                    "stream": stream,
                    "found_at": sizes,
                    "bets_won_at": won,
                }


def _sizes(chain: Chain, engine: Engine, rng: np.random.Generator) -> tuple[list[int], int | None]:
    """The sizes of the grid at which the battery finds the fault, and the token at which the bets
    are won."""
    grid = [size for size in GRID if size <= MOST]
    evidence, found, won = Evidence(), list[int](), None
    evidence.begin_text()
    marks = chain.marks(engine.stream(chain, grid[-1], rng), rng)
    for place, size in enumerate(grid):
        while len(evidence.marks) < size:
            evidence.see(next(marks))
            if won is None and evidence.wealth.highest >= -math.log(LEVEL):
                won = len(evidence.marks)
        if significant(evidence.findings(), LEVEL):
            found.append(size)
        if won is not None and found[-ENOUGH:] == grid[max(place + 1 - ENOUGH, 0) : place + 1]:
            return [*found, *grid[place + 1 :]], won
    return found, won


def level(runs: int, only: str | None) -> Iterator[dict[str, Any]]:
    """A line for each exact engine: of its runs the least chance, times the number of tests, where
    that is at most EASY_LEVEL."""
    for model, chain in chains().items():
        for tokens in LEVEL_TOKENS[model]:
            for name, engine in EXACT.items():
                if only not in (None, name):
                    continue
                alarms = []
                for run in range(runs):
                    rng = np.random.default_rng([2, tokens, run])
                    findings = evidence_of(engine, chain, tokens, rng).findings()
                    alarms.append(min(one.chance for one in findings) * len(findings))
                line = {"kind": "level", "model": model, "engine": name, "tokens": tokens}
                alarms = sorted(one for one in alarms if one <= EASY_LEVEL)
                yield line | {"runs": runs, "alarms": alarms}


def show(lines: list[dict[str, Any]]) -> None:
    """The table."""
    print(
        f"{'model':13} {'fault':22} {'battery':>8} {'bets':>8} {'best single test':>17} "
        f"{'allowed':>8}"
    )
    for model in NEEDED:
        for name in FAULTY:
            of = [
                line
                for line in lines
                if (line["kind"], line["model"], line["engine"]) == ("power", model, name)
            ]
            if of:
                median = next(
                    (
                        size
                        for size in GRID
                        if 2 * sum(size in one["found_at"] for one in of) >= len(of)
                    ),
                    None,
                )
                bets = sorted(one["bets_won_at"] or MOST + 1 for one in of)[(len(of) - 1) // 2]
                best = NEEDED[model].get(name)
                allowed = None if best is None else round(ALLOWED * best)
                print(
                    f"{model:13} {name:22} {_or(median)} "
                    f"{_or(bets if bets <= MOST else None)} {_or(best, 17)} "
                    f"{_or(allowed)}"
                )
    for line in (line for line in lines if line["kind"] == "level"):
        counts = [sum(one <= at for one in line["alarms"]) for at in (LEVEL, EASY_LEVEL)]
        alarms = f"{counts[0]} of {line['runs']} at {LEVEL:g}, {counts[1]} at {EASY_LEVEL:g}"
        print(f"{line['model']:13} {line['engine']:22} {line['tokens']} tokens: {alarms}")


def _or(value: int | None, width: int = 8) -> str:
    return f"{'>' if value is None else value:>{width}}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="raw lines")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--only", choices=("power", "level"))
    parser.add_argument(
        "--engine",
        choices=(*FAULTY, *EXACT),
        help="only this one; its lines are added to those in --out",
    )
    given = parser.parse_args()
    kept = [] if given.engine is None else read_if_there(given.out)
    lines = [
        line
        for line in kept
        if line["engine"] != given.engine or line["kind"] not in (given.only, None)
    ]
    for kind, made in (
        ("power", power(given.streams, given.engine)),
        ("level", level(given.runs, given.engine)),
    ):
        if given.only in (None, kind):
            lines.extend(made)
    given.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    show(lines)


if __name__ == "__main__":
    main()
