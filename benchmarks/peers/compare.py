"""Engines side by side on the same prompts, prompt by prompt in turn: texts, seconds, ratios.

    python benchmarks/peers/compare.py run RAW --model FOLDER [--name NAME] --chat FILE
        [--genai PYTHON --genai-model PREFIX] [--vllm PYTHON] [--llama PYTHON --gguf FILE]
        [--assistant FOLDER] [--first 8 --tokens 96 --temperatures 0 0.7 --only ARM ...]
    python benchmarks/peers/compare.py report RAW

Every arm is a `worker.py` in the environment that has its engine; all are loaded before the first
text, each has written one text that does not count, and for every prompt they are asked one after
the other in a new order. PREFIX: what `convert.py` wrote, without its -fp16 and -int8. Prompts: the
built-in edits, and the first turns of FILE (as `draftproof bench` reads it) evenly over its length.

The report gives seconds a token, the prompt included, as ratios paired by prompt: to the plain arm
of the same engine and precision, and to the fastest plain arm of all; medians with 90% intervals
from a bootstrap over prompts. Stop everything else first.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from arms import Arm, arms_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from raw_lines import append, read, read_if_there

WORKER = Path(__file__).parent / "worker.py"
WARM_UP = 16
"""Tokens of the text that each arm writes first."""


class Worker:
    """One arm's process."""

    def __init__(self, arm: Arm) -> None:
        command = [arm.python, str(WORKER), arm.kind, json.dumps(arm.options)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.about = self._answer()

    def ask(self, **wanted: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"it ended with exit code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


def run(args: argparse.Namespace) -> None:
    prompts = prompts_of(args)
    arms = {arm.name: arm for arm in arms_of(args, sys.executable)}
    workers = started(arms.values(), args.raw)
    try:
        first = next(iter(prompts.values()))
        arms = {name: arm for name, arm in arms.items() if arm.process in workers}
        arms = {name: arm for name, arm in arms.items() if warmed(arm, workers, first, args.raw)}
        done = {_key(line) for line in read_if_there(args.raw) if "tokens" in line}
        for temperature in args.temperatures:
            refused: set[str] = set()
            for number, (prompt, ids) in enumerate(prompts.items()):
                order = list(arms)
                random.Random(number).shuffle(order)
                for arm in order:
                    about = {"arm": arm, "prompt": prompt, "temperature": temperature}
                    if _key(about) in done or arm in refused:
                        continue
                    wanted = {"ids": ids, "max_tokens": args.tokens, "temperature": temperature}
                    wanted |= {"seed": number, "way": arms[arm].way}
                    found = workers[arms[arm].process].ask(**wanted)
                    if "error" in found:
                        refused.add(arm)
                        append(args.raw, {"left_out": arm, "temperature": temperature, **found})
                        continue
                    about |= {"own": arms[arm].own, "tokens": len(found["token_ids"])}
                    append(args.raw, about | found)
    finally:
        for worker in workers.values():
            worker.close()


def started(arms: Iterable[Arm], raw: Path) -> dict[str, Worker]:
    """A process for all arms of the same options that can be started; why others could not goes to
    the raw file."""
    workers: dict[str, Worker] = {}
    tried = set()
    for arm in arms:
        if arm.process in tried:
            continue
        tried.add(arm.process)
        try:
            workers[arm.process] = Worker(arm)
        except (OSError, RuntimeError) as error:
            append(raw, {"left_out": arm.own, "error": str(error)})
            continue
        about = workers[arm.process].about
        print(f"{arm.own} is loaded ({about['ready']} s)", file=sys.stderr)
        append(raw, {"process": arm.own, **about})
    return workers


def warmed(arm: Arm, workers: dict[str, Worker], ids: list[int], raw: Path) -> bool:
    """Whether the arm has written a short text that does not count."""
    wanted: dict[str, Any] = {"ids": ids, "max_tokens": WARM_UP, "temperature": 0, "seed": 0}
    found = workers[arm.process].ask(**wanted, way=arm.way)
    if "error" in found:
        append(raw, {"left_out": arm.name, **found})
    return "error" not in found


def prompts_of(args: argparse.Namespace) -> dict[str, list[int]]:
    """Token ids by "workload number"."""
    from draftproof.bench import builtin_items, encode, read_items
    from draftproof.models.load import load_tokenizer

    tokenizer = load_tokenizer(Path(args.model), None)
    chat = read_items(args.chat)
    chosen = {
        "edits": builtin_items(["code-editing"])[: args.first],
        "chat": [chat[i * len(chat) // args.first] for i in range(args.first)],
    }
    return {
        f"{workload} {number}": list(found.ids)
        for workload, items in chosen.items()
        for number, found in enumerate(encode(items, tokenizer, len(tokenizer), None, args.tokens))
    }


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["arm"], line["prompt"], line["temperature"]


def report(args: argparse.Namespace) -> None:
    """A table for each temperature and workload."""
    lines = [line for line in read(args.raw) if "tokens" in line]
    for line in read(args.raw):
        if "left_out" in line:
            print(f"left out: {line}")
    for temperature in sorted({line["temperature"] for line in lines}):
        for workload in ("edits", "chat"):
            chosen = [
                line
                for line in lines
                if line["temperature"] == temperature and line["prompt"].startswith(workload)
            ]
            if chosen:
                print(f"\n{workload}, T = {temperature}\n")
                print("\n".join(table(chosen)))


def table(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown rows: tokens per second (median over prompts), both ratios."""
    from statistics import median

    costs: dict[str, dict[str, float]] = {}
    for line in lines:
        cost = line["seconds"] / max(line["tokens"], 1)
        costs.setdefault(line["arm"], {})[line["prompt"]] = cost
    own = {line["arm"]: line["own"] for line in lines}
    plain = {arm: median(costs[arm].values()) for arm in costs if own[arm] == arm}
    fastest = min(plain, key=lambda arm: plain[arm])
    rows = [f"| arm | tokens per second | to its own plain | to {fastest} |", "|---|---|---|---|"]
    for arm, by_prompt in sorted(costs.items()):
        rate = 1 / median(by_prompt.values())
        ratios = [
            "" if arm == base else ratio(costs.get(base, {}), by_prompt)
            for base in (own[arm], fastest)
        ]
        rows.append(f"| {arm} | {rate:.1f} | {ratios[0]} | {ratios[1]} |")
    return rows


def ratio(over: dict[str, float], under: dict[str, float]) -> str:
    from draftproof.report.bootstrap import bootstrap

    pairs = [over[prompt] / under[prompt] for prompt in under if prompt in over]
    if not pairs:
        return ""
    found = bootstrap(pairs)
    return f"{found.point:.2f} ({found.low:.2f} to {found.high:.2f})"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ways = arguments.add_subparsers(required=True)
    running = ways.add_parser("run")
    running.set_defaults(way=run)
    for option in ("--model", "--chat"):
        running.add_argument(option, required=True)
    for option in ("--name", "--genai", "--genai-model", "--vllm", "--llama", "--gguf"):
        running.add_argument(option)
    for option in ("--assistant", "--draft-name"):
        running.add_argument(option)
    running.add_argument("--eos", type=int, default=2, help="the id that ends a text")
    running.add_argument("--first", type=int, default=8)
    running.add_argument("--tokens", type=int, default=96)
    running.add_argument("--threads", type=int, default=2)
    running.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7])
    running.add_argument("--only", nargs="+")
    reporting = ways.add_parser("report")
    reporting.set_defaults(way=report)
    for way in (running, reporting):
        way.add_argument("raw", type=Path)
    args = arguments.parse_args()
    args.way(args)


if __name__ == "__main__":
    main()
