"""The white-box audit on a real model: our engine with every rule and drafter, with planted faults,
and transformers' own.

    python benchmarks/white_box_audit.py exact --out benchmarks/results/white_box_exact.jsonl
    python benchmarks/white_box_audit.py faults --out benchmarks/results/white_box_faults.jsonl
    python benchmarks/white_box_audit.py transformers --out
        benchmarks/results/white_box_transformers.jsonl

One line an arm, written as it ends; an arm that is in the file already is not run again. The target
is that of `draftproof pull`, or --target. Nothing is timed. `faults` needs chains of sampled
drafts; they come from the target without three of its layers. `transformers` drafts by prompt
lookup, and with the model given by --draft.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raw_lines import append, read_if_there

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.audit.engines.ours import OurEngine
from draftproof.audit.engines.transformers_assisted import TransformersEngine
from draftproof.audit.white_box.planted import FAULTS, PlantedEngine
from draftproof.audit.white_box.run import audit_white_box
from draftproof.models.load import load_model
from draftproof.models.pull import DEFAULT_MODEL
from draftproof.workloads.prompt_files import builtin_items, choose, encode

CHAIN = {"method": "layer_skip", "skip_layers": [9, 13, 17], "num_speculative_tokens": 4}
DRAFTING: dict[str, dict[str, Any]] = {
    "ngram, match": {"method": "ngram"},
    "ngram, token": {"method": "ngram", "rule": "token"},
    "suffix, match": {"method": "suffix"},
    "eagle3, token": {"method": "eagle3", "rule": "token"},
    "eagle3, block": {"method": "eagle3", "rule": "block"},
    "layer_skip, token": CHAIN | {"rule": "token"},
    "layer_skip, block": CHAIN | {"rule": "block"},
    "layer_skip, match": CHAIN | {"rule": "match"},
    "layer_skip, gumbel": CHAIN | {"rule": "gumbel"},
    "lookahead, match": {"method": "lookahead"},
    "recycling, match": {"method": "recycling"},
}
SIX = (
    "no residual",
    "wrong q",
    "temperature on one side",
    "arg max",
    "off by one",
    "stale processor",
    "reused noise",
)


def arms(args: argparse.Namespace, target: Any) -> Iterator[tuple[str, Any, SamplingParams]]:
    """(name, engine, parameters) of every arm."""
    params = SamplingParams(
        temperature=args.temperature, max_tokens=args.tokens, seed=1, ignore_eos=True
    )
    tokenizer = target.tokenizer
    if args.what == "exact":
        for name, config in DRAFTING.items():
            yield (
                name,
                OurEngine(SpeculativeDecoder(None, target, tokenizer, speculative_config=config)),
                params,
            )
    elif args.what == "faults":
        decoder = SpeculativeDecoder(
            None, target, tokenizer, speculative_config=DRAFTING["layer_skip, token"]
        )
        for name in SIX:
            penalty = 1.5 if name == "stale processor" else 1.0
            given = SamplingParams(
                temperature=args.temperature,
                max_tokens=args.tokens,
                seed=1,
                ignore_eos=True,
                repetition_penalty=penalty,
            )
            yield name, PlantedEngine(decoder, FAULTS[name]), given
    else:
        draft = load_model(args.draft) if args.draft else None
        if draft is not None:
            yield "assisted", TransformersEngine(target, draft, 5), params
        yield "prompt lookup", TransformersEngine(target, None, 10), params


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("exact", "faults", "transformers"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", default=DEFAULT_MODEL)
    parser.add_argument("--draft")
    parser.add_argument("--only", help="run this arm alone")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--per-workload", type=int, default=2)
    args = parser.parse_args()
    target = load_model(args.target, dtype=args.dtype)
    items = choose(builtin_items(), args.per_workload)
    prompts = [
        one.ids
        for one in encode(
            items, target.tokenizer, target.vocab_size, target.max_length, args.tokens
        )
    ]
    done = {line["arm"] for line in read_if_there(args.out)}
    for name, engine, params in arms(args, target):
        if name in done or args.only not in (None, name):
            continue
        found = audit_white_box(engine, target, prompts, params)
        line = {
            "arm": name,
            "target": target.name,
            "dtype": str(target.dtype),
            "prompts": len(prompts),
            **found.document(),
        }
        append(args.out, line)
        print(
            f"{name}: {found.verdict.outcome}, {found.verdict.cause}, {line['tokens']} tokens",
            flush=True,
        )


if __name__ == "__main__":
    main()
