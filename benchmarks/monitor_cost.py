"""What the monitor costs on a real model, as a share of decoding.

    .venv/bin/python benchmarks/monitor_cost.py --out monitor_cost.json [--threads 2] [--repeats 3]

Each text is written with and without the monitor, in turn and in changing order; it is the same
text, so their times are of the same rounds. `share`: the seconds that the monitor itself counted,
of all seconds of the watched texts. `ratio`: watched over unwatched seconds, the median of pairs
with its quartiles.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.models.load import load_model
from draftproof.models.pull import DEFAULT_MODEL
from draftproof.workloads.prompt_files import builtin_items, choose, encode

ARMS: dict[str, dict[str, Any]] = {
    "ngram, match": {"method": "ngram"},
    "eagle3, token": {"method": "eagle3", "rule": "token"},
    "eagle3, block": {"method": "eagle3", "rule": "block"},
}


def measured(decoder: SpeculativeDecoder, prompts: list[Any], params: Any, repeats: int) -> Any:
    """Pairs of times, and the monitor's own count."""
    ratios, own, whole = [], 0.0, 0.0
    for number in range(repeats * len(prompts)):
        prompt, given = prompts[number % len(prompts)], replace(params, seed=number)
        order = (True, False) if number % 2 else (False, True)
        made = {on: decoder.generate(prompt, given, monitor=on) for on in order}
        assert made[True].token_ids == made[False].token_ids
        ratios.append(made[True].seconds / made[False].seconds)
        own, whole = own + made[True].stats.monitor["seconds"], whole + made[True].seconds
    low, median, high = (float(np.quantile(ratios, share)) for share in (0.25, 0.5, 0.75))
    return {"pairs": len(ratios), "share": own / whole, "ratio": median, "quartiles": [low, high]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    target = load_model(DEFAULT_MODEL)
    items = choose(builtin_items(), 1)
    texts = encode(items, target.tokenizer, target.vocab_size, target.max_length, args.tokens)
    prompts = [list(text.ids) for text in texts]
    params = SamplingParams(temperature=0.7, max_tokens=args.tokens, ignore_eos=True)
    found = {"target": target.name, "dtype": str(target.dtype), "threads": args.threads, "arms": {}}
    for name, config in ARMS.items():
        decoder = SpeculativeDecoder(None, target, target.tokenizer, speculative_config=config)
        decoder.generate(prompts[0], params)  # warm up
        found["arms"][name] = measured(decoder, prompts, params, args.repeats)
        print(name, found["arms"][name], flush=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
