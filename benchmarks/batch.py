"""Many prompts at once: plain batched decoding beside speculative batched decoding, interleaved, by
batch size.

    .venv/bin/python benchmarks/batch.py --dtype float32 --out benchmarks/results/batch_fp32.jsonl
    .venv/bin/python benchmarks/batch.py --report benchmarks/results/batch_fp32.jsonl
    .venv/bin/python benchmarks/batch.py --gaps benchmarks/results/batch_bf16.jsonl

One JSON line a run, written as it ends; a run already in the file is not repeated, so an
interrupted benchmark goes on (`--budget` seconds at a time). A run generates exactly as many tokens
for each prompt (end tokens are ignored); tokens per second count all of it, reading the prompts
included. Arms of one batch size follow each other, their order rotated between repetitions.
"""

from __future__ import annotations

import argparse
import colorsys
import fnmatch
import inspect
import json
import shlex
import statistics
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from raw_lines import append, read, read_if_there

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.decode.prompts import prompt_ids
from draftproof.models.load import load_model
from draftproof.models.protocol import Step, extend
from draftproof.models.pull import DEFAULT_MODEL
from draftproof.report.provenance import provenance

SIZES = (1, 2, 4, 8, 16)
LENGTHS = (0, 3, 10)
"""Draft lengths of `ngram`; 0 is plain decoding."""
FUNCTIONS = (
    *(
        textwrap.indent,
        colorsys.rgb_to_hls,
        fnmatch.filter,
        colorsys.rgb_to_yiq,
        colorsys.hls_to_rgb,
        shlex.join,
    ),
    *(
        textwrap.dedent,
        colorsys.rgb_to_hsv,
        colorsys.hsv_to_rgb,
        fnmatch.fnmatch,
        shlex.quote,
        textwrap.shorten,
    ),
    *(textwrap.fill, textwrap.wrap, fnmatch.fnmatchcase, colorsys.yiq_to_rgb),
)
TOPICS = (
    *(
        "a used bicycle",
        "the colour of the sky",
        "an invitation to a party",
        "good bread",
        "the tides",
        "a first garden",
    ),
    *(
        "how a lock works",
        "learning to swim",
        "the moon",
        "old maps",
        "a rainy day",
        "tea",
        "bees",
        "a long walk",
        "glass",
    ),
    "sleep",
)


def prompts(kind: str, count: int) -> list[list[dict[str, str]]]:
    """`count` chats: edits of library functions, or questions."""
    if kind == "code":
        texts = [
            (
                "Add type hints to this function, change nothing "
                f"else.\n\n```python\n{inspect.getsource(f)[:600]}```"
            )
            for f in FUNCTIONS
        ]
    else:
        texts = [
            f"Explain in a few sentences what one should know about {topic}." for topic in TOPICS
        ]
    return [[{"role": "user", "content": text}] for text in texts[:count]]


def cells(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every run, arms of one kind and batch size after each other."""
    for repetition in range(args.repetitions):
        for kind in args.kinds:
            for size in args.sizes:
                turn = repetition % len(args.lengths)
                for length in (*args.lengths[turn:], *args.lengths[:turn]):
                    yield {
                        "kind": kind,
                        "batch_size": size,
                        "draft_length": length,
                        "repetition": repetition,
                    }


def measure(args: argparse.Namespace) -> bool:
    """Run what is missing for at most `args.budget` seconds; True when nothing is missing any
    more."""
    began = time.monotonic()
    target = load_model(args.target, dtype=args.dtype)
    decoder = SpeculativeDecoder(
        None, target, target.tokenizer, speculative_config={"method": "ngram"}
    )
    known = {tuple(one["cell"].items()) for one in read_if_there(args.out)}
    for cell in cells(args):
        if tuple(cell.items()) in known:
            continue
        if time.monotonic() - began > args.budget:
            return False
        append(args.out, run(decoder, cell, args) | {"provenance": provenance(target)})
    return True


def run(
    decoder: SpeculativeDecoder, cell: dict[str, Any], args: argparse.Namespace
) -> dict[str, Any]:
    """One run; the first tokens of a run of the same kind before it warm caches and threads."""
    asked = prompts(cell["kind"], max(args.prompts, cell["batch_size"]))
    made: Any = decoder.plain if cell["draft_length"] == 0 else decoder
    length = None if cell["draft_length"] == 0 else cell["draft_length"]
    params = {
        tokens: SamplingParams(
            temperature=args.temperature,
            seed=1,
            max_tokens=tokens,
            ignore_eos=True,
            num_speculative_tokens=length,
        )
        for tokens in (2, args.tokens)
    }
    made.generate(asked[: cell["batch_size"]], params[2], batch_size=cell["batch_size"])
    begin = time.perf_counter()
    results = made.generate(asked, params[args.tokens], batch_size=cell["batch_size"])
    seconds = time.perf_counter() - begin
    tokens = sum(len(result.token_ids) for result in results)
    return {
        "cell": cell,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "rounds": sum(result.stats.num_rounds for result in results),
        "accepted": sum(result.stats.num_accepted_tokens for result in results),
        "drafted": sum(result.stats.num_draft_tokens for result in results),
        "texts": [list(result.token_ids) for result in results],
        "threads": torch.get_num_threads(),
        "dtype": args.dtype,
    }


def report(path: Path) -> str:
    """The table: by kind and batch size, tokens per second of every arm, and ratios to plain
    decoding of the same batch size and of batch 1."""
    runs = read(path)
    rates: dict[tuple[str, int, int], list[float]] = {}
    for one in runs:
        cell = one["cell"]
        rates.setdefault((cell["kind"], cell["batch_size"], cell["draft_length"]), []).append(
            one["tokens_per_second"]
        )
    middle = {key: statistics.median(found) for key, found in rates.items()}
    lengths = sorted({length for _, _, length in middle})
    head = ["prompts", "batch", "plain tok/s", "over batch 1"]
    head += [f"ngram k={k} tok/s (to plain, tokens/round)" for k in lengths if k]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for kind, size in sorted({key[:2] for key in middle}):
        plain = middle.get((kind, size, 0))
        if plain is None:
            continue
        row = [kind, str(size), f"{plain:.1f}", f"{plain / middle[kind, 1, 0]:.2f}"]
        for k in (k for k in lengths if k):
            rate = middle.get((kind, size, k))
            row.append(
                ""
                if rate is None
                else f"{rate:.1f} ({rate / plain:.2f}, {per_round(runs, kind, size, k):.2f})"
            )
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join([*lines, "", parted(runs)])


def per_round(runs: Sequence[dict[str, Any]], kind: str, size: int, length: int) -> float:
    """Tokens per round of one cell."""
    cell = {"kind": kind, "batch_size": size, "draft_length": length}
    found = [one for one in runs if cell.items() <= one["cell"].items()]
    return sum(one["tokens"] for one in found) / sum(one["rounds"] for one in found)


def parted(runs: Sequence[dict[str, Any]]) -> str:
    """How many texts differ from plain decoding's at batch size 1."""
    alone = {
        one["cell"]["kind"]: one["texts"]
        for one in runs
        if one["cell"]["batch_size"] == 1 and not one["cell"]["draft_length"]
    }
    pairs = [
        (text, whole)
        for one in runs
        for text, whole in zip(one["texts"], alone.get(one["cell"]["kind"], []), strict=False)
    ]
    return (
        f"{sum(text != whole for text, whole in pairs)} of {len(pairs)} texts differ from "
        "the same prompt's, plain and alone."
    )


def gaps(path: Path, name: str) -> str:
    """Where texts part from the same prompt's, plain and alone: how far apart the two tokens'
    logits are there, reading that text alone. Near-ties are what rounding may decide; anything else
    would be a fault."""
    runs = read(path)
    alone = {
        one["cell"]["kind"]: one["texts"]
        for one in runs
        if one["cell"]["batch_size"] == 1 and not one["cell"]["draft_length"]
    }
    target = load_model(name, dtype=runs[0]["dtype"])
    found: dict[tuple[str, int, int, tuple[int, int]], dict[str, Any]] = {}
    for one in runs:
        kind = one["cell"]["kind"]
        for number, (text, whole) in enumerate(
            zip(one["texts"], alone.get(kind, []), strict=False)
        ):
            if text != whole:
                place = next(i for i, (a, b) in enumerate(zip(text, whole, strict=True)) if a != b)
                found.setdefault((kind, number, place, (whole[place], text[place])), {"runs": []})[
                    "runs"
                ].append(one["cell"])
    lines = []
    for (kind, number, place, (expected, other)), parting in found.items():
        session = target.open()
        ids = (
            *prompt_ids(prompts(kind, number + 1)[number], target.tokenizer, target.vocab_size),
            *alone[kind][number][:place],
        )
        logits = extend(Step(session, ids, rows=[len(ids) - 1])).logits[0].float()
        session.close()
        gap, best = float(logits[expected] - logits[other]), float(logits.max())
        lines.append(
            json.dumps(
                {
                    "kind": kind,
                    "prompt": number,
                    "place": place,
                    "gap": gap,
                    "best_logit": best,
                    "runs": len(parting["runs"]),
                }
            )
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", default=DEFAULT_MODEL)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--gaps", type=Path, help="a file of runs whose parted texts are looked at")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--kinds", nargs="+", choices=("code", "chat"), default=["code", "chat"])
    parser.add_argument(
        "--prompts", type=int, default=8, help="prompts of a run, unless the batch is larger"
    )
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--budget", type=float, default=270.0, help="seconds after which no further run begins"
    )
    args = parser.parse_args(arguments)
    if args.report is not None or args.gaps is not None:
        print(report(args.report) if args.gaps is None else gaps(args.gaps, args.target))
        return 0
    if args.out is None:
        parser.error("--out FILE or --report FILE is needed")
    torch.set_num_threads(args.threads)
    print("complete" if measure(args) else "not complete yet: run it again")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
