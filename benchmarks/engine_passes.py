"""What a pass over n tokens costs on each engine and precision, in one run, every kind in turn and
in a new order each time.

    python benchmarks/engine_passes.py MODEL --threads 2 [--context 200] [--turns 12] [--kinds
        torch/bfloat16 openvino/int8 ...]

Prints a JSON line a kind: milliseconds of a pass over one token (median, quartiles), and of n
tokens as a ratio to it; last the ratio of one-token passes to the first kind's, paired by turn
(median, quartiles). Stop everything else first."""

from __future__ import annotations

import argparse
import json
import random
from statistics import median, quantiles
from time import perf_counter
from typing import Any

KINDS = (
    "torch/bfloat16",
    "torch/float32",
    "openvino/bfloat16",
    "openvino/float32",
    "openvino/int8",
    "openvino/int4",
)
WIDTHS = (1, 2, 3, 4, 5, 8, 16)
PASSES = 4
"""Passes of one width in a turn; their median counts."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--context", type=int, default=200)
    arguments.add_argument("--turns", type=int, default=12)
    arguments.add_argument("--kinds", nargs="+", default=KINDS)
    args = arguments.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    sessions = {kind: opened(args.model, kind, args.context) for kind in args.kinds}
    seconds: dict[tuple[str, int], list[float]] = {
        (kind, width): [] for kind in args.kinds for width in WIDTHS
    }
    for turn in range(args.turns):
        order = list(seconds)
        random.Random(turn).shuffle(order)
        for kind, width in order:
            seconds[kind, width].append(timed(sessions[kind], width))
    first = args.kinds[0]
    for kind in args.kinds:
        alone = seconds[kind, 1]
        ratios = {width: round(median(paired(seconds[kind, width], alone)), 2) for width in WIDTHS}
        told = {
            "kind": kind,
            "milliseconds": spread([1e3 * s for s in alone]),
            "ratio_to_one_token": ratios,
        }
        print(json.dumps(told | {f"times_{first}": spread(paired(seconds[first, 1], alone))}))


def opened(model: str, kind: str, context: int) -> Any:
    """A session of one kind of pass that has read `context` tokens."""
    from draftproof.models import load_engine
    from draftproof.models.protocol import Step, extend

    engine, precision = kind.split("/")
    weights = precision if precision.startswith("int") else None
    dtype = {"int8": "bfloat16", "int4": "float32"}.get(precision, precision)
    loaded = load_engine(model, engine=engine, dtype=dtype, quantization=weights)
    session = loaded.open()
    extend(
        Step(
            session,
            [(7919 * i + 11) % loaded.num_input_ids for i in range(context)],
            rows=[context - 1],
        )
    )
    return session


def timed(session: Any, width: int) -> float:
    """Median seconds of a pass over `width` tokens with all its rows, the first one not counted."""
    from draftproof.models.protocol import Step, extend

    found, length = [], session.length
    for number in range(PASSES + 1):
        begin = perf_counter()
        extend(Step(session, [(31 * number + i) % 1000 for i in range(width)]))
        found.append(perf_counter() - begin)
        session.rollback(length)
    return median(found[1:])


def paired(over: list[float], under: list[float]) -> list[float]:
    return [a / b for a, b in zip(over, under, strict=True)]


def spread(values: list[float]) -> dict[str, float]:
    low, _, high = quantiles(values, n=4)
    return {"median": round(median(values), 2), "low": round(low, 2), "high": round(high, 2)}


if __name__ == "__main__":
    main()
