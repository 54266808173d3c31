"""How many tokens the white-box audit needs to see each planted fault, on models small enough to
run thousands of texts.

    python benchmarks/white_box_power.py --model toy --out benchmarks/results/white_box_power.jsonl
    python benchmarks/white_box_power.py --model v1000 --out
        benchmarks/results/white_box_power.jsonl

`toy` has 3 tokens, `v1000` a thousand; both are Markov chains, drafts are chains of three under the
rule `token`. Each stream is one engine that writes texts of 60 tokens. After sizes that grow by a
quarter the whole battery is asked for its verdict at level 1e-3: `tokens` is the first size at
which half of the streams are called not exact, null where none is within --most. The arm "exact"
counts false alarms the same way, over all sizes together. `--faults table` plants the faults of
`audit/black_box/toys.py` instead, each stream one long text, which the black box is tried on too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from raw_lines import append, read_if_there

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.black_box.self_test import chains
from draftproof.audit.black_box.toys import EXACT, FAULTY, emitted
from draftproof.audit.engines.rounds import RecordedRound
from draftproof.audit.white_box.battery import Battery
from draftproof.audit.white_box.planted import FAULTS, Fault, PlantedEngine
from draftproof.audit.white_box.run import reading_of
from draftproof.audit.white_box.scorer import Scorer
from draftproof.core.rules import RULES

LEVEL, TEXT = 1e-3, 60
CHAINS = {"toy": "3 tokens", "v1000": "1,000 tokens"}
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


def stream_of_table(model: str, name: str, number: int, most: int) -> list[bool]:
    """The same for an engine of `toys`: one text."""
    chain, engine = chains()[CHAINS[model]], {**EXACT, **FAULTY}[name]
    laws = TableModel(lambda prefix: chain.target(prefix), vocab_size=chain.targets.shape[1])
    scorer, battery = Scorer(laws, SamplingParams()), Battery(RULES["token"], seed=number)
    rounds, context, found = engine.rounds(chain, np.random.default_rng([3, number])), (0,), []
    for size in sizes(most):
        while len(context) <= size:
            draft, verdict = next(rounds)
            tokens = tuple(emitted(draft, verdict))
            # every round is a text of its own: the laws look at the last token alone
            seen = RecordedRound(context[-1:], context[-1:], draft, verdict.path, tokens)
            battery.see(seen, scorer.laws(seen))
            context += tokens
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
    parser.add_argument("--faults", choices=("planted", "table"), default="planted")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--most", type=int, default=6000)
    args = parser.parse_args()
    done = {(line["model"], line["arm"]) for line in read_if_there(args.out)}
    for arm, run_stream in arms(args).items():
        if (args.model, arm) in done:
            continue
        runs = [run_stream(number) for number in range(args.streams)]
        first = sorted(sizes(args.most)[run.index(True)] for run in runs if run[-1])
        half = (args.streams + 1) // 2
        line = {"model": args.model, "arm": arm, "streams": args.streams, "most": args.most}
        line |= {"called": len(first), "tokens": first[half - 1] if len(first) >= half else None}
        append(args.out, line | {"all": first})
        print(line, flush=True)


def arms(args: argparse.Namespace) -> dict[str, Callable[[int], list[bool]]]:
    """Name -> whether the stream of a number is called not exact, size by size."""
    if args.faults == "table":
        names = ("token", *FAULTY)
        return {
            f"table: {name}": partial(stream_of_table, args.model, name, most=args.most)
            for name in names
        }
    faults = {"exact": Fault(), **FAULTS}
    del faults["stale processor"]  # that one needs a penalty
    return {
        name: lambda number, fault=fault: stream(args.model, fault, number, args.most)
        for name, fault in faults.items()
    }


if __name__ == "__main__":
    main()
