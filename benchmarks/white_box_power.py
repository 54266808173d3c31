"""How many tokens the white-box audit needs to see each planted fault, on models small enough to
run thousands of texts.

    python benchmarks/white_box_power.py --model toy --out benchmarks/results/white_box_power.jsonl
    python benchmarks/white_box_power.py --model v1000 --out
        benchmarks/results/white_box_power.jsonl

`toy` has 3 tokens, `v1000` a thousand; both are Markov chains, drafts are chains of three under the
rule `token`. Each stream is one engine that writes texts of 60 tokens. After sizes that grow by a
quarter the whole battery is asked for its verdict at level 1e-3: `tokens` is the first size at
which half of the streams are called not exact, null where none is within --most. The arm "exact"
counts false alarms the same way, over all sizes together.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from raw_lines import append, read_if_there

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.white_box.battery import Battery
from draftproof.audit.white_box.planted import FAULTS, Fault, PlantedEngine
from draftproof.audit.white_box.run import reading_of
from draftproof.audit.white_box.scorer import Scorer

LEVEL, TEXT = 1e-3, 60
TOY_TARGET = [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]]
TOY_DRAFT = [[0.2, 0.5, 0.3], [0.5, 0.2, 0.3], [0.4, 0.5, 0.1]]


def models(name: str) -> tuple[TableModel, TableModel]:
    """Target and draft."""
    if name == "toy":
        return TableModel(TOY_TARGET), TableModel(TOY_DRAFT)
    rng = np.random.default_rng(7)
    logits = 2.2 * rng.normal(size=(16, 1000))
    pair = (logits, logits + 0.7 * rng.normal(size=logits.shape))
    laws = [[softmax(row) for row in rows] for rows in pair]
    target, draft = (
        TableModel(lambda prefix, rows=rows: rows[prefix[-1] % 16], vocab_size=1000)
        for rows in laws
    )
    return target, draft


def softmax(row: Any) -> Any:
    mass = np.exp(row - row.max())
    return mass / mass.sum()


def sizes(most: int) -> list[int]:
    """60, then a quarter more each time, as multiples of a text."""
    found = [TEXT]
    while found[-1] < most:
        found.append(max(found[-1] + TEXT, int(found[-1] * 1.25 / TEXT) * TEXT))
    return found


def stream(name: str, fault: Fault, number: int, most: int) -> list[bool]:
    """Whether one stream is called not exact, at every size until it is."""
    target, draft = models(name)
    decoder = SpeculativeDecoder(
        draft,
        target,
        speculative_config={"method": "draft_model", "rule": "token", "num_speculative_tokens": 3},
    )
    params = SamplingParams(max_tokens=TEXT, seed=0)
    engine, scorer = PlantedEngine(decoder, fault), Scorer(target, params)
    battery = Battery(decoder.rule, seed=number)
    found, texts = [], 0
    for size in sizes(most):
        while texts * TEXT < size:
            given = SamplingParams(max_tokens=TEXT, seed=100_000 * number + texts)
            for seen in engine.rounds([0], given):
                battery.see(seen, scorer.laws(seen))
            texts += 1
        found.append(reading_of(battery, LEVEL).contradicted)
        if found[-1]:
            break
    scorer.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=("toy", "v1000"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--most", type=int, default=6000)
    args = parser.parse_args()
    done = {(line["model"], line["arm"]) for line in read_if_there(args.out)}
    for arm, fault in {"exact": Fault(), **FAULTS}.items():
        if (args.model, arm) in done or arm == "stale processor":  # that one needs a penalty
            continue
        runs = [stream(args.model, fault, number, args.most) for number in range(args.streams)]
        first = sorted(
            sizes(args.most)[run.index(True)] if run[-1] else None for run in runs if run[-1]
        )
        half = (args.streams + 1) // 2
        line = {
            "model": args.model,
            "arm": arm,
            "streams": args.streams,
            "most": args.most,
            "called": len(first),
        }
        append(
            args.out,
            line | {"tokens": first[half - 1] if len(first) >= half else None, "all": first},
        )
        print(line | {"tokens": first[half - 1] if len(first) >= half else None}, flush=True)


if __name__ == "__main__":
    main()
