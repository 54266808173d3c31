"""Whether drafted text is plain text token for token on an engine: greedy, and sampled under
`match`, alone and in batches.

    python benchmarks/engine_identity.py MODEL --prompts FILE [--engine openvino --dtype bfloat16
        --quantize int8]
        [--first 200 --tokens 64 --batch 4 --config JSON]

FILE: prompts as `draftproof bench` reads them; they are taken evenly over its length. Prints a JSON
line for each temperature and way: how many texts and tokens, and every text that differs with the
place where it does. Exit code 1 when one differs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

DRAFTER = '{"method": "suffix", "rule": "match"}'


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model")
    arguments.add_argument("--prompts", required=True)
    arguments.add_argument("--engine", default="openvino")
    arguments.add_argument("--dtype", default="bfloat16")
    arguments.add_argument("--quantize")
    arguments.add_argument("--first", type=int, default=200)
    arguments.add_argument("--tokens", type=int, default=64)
    arguments.add_argument("--batch", type=int, default=4)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--config", default=DRAFTER)
    args = arguments.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    from draftproof import SamplingParams, SpeculativeDecoder
    from draftproof.bench import encode, read_items

    loaded = {"engine": args.engine, "dtype": args.dtype, "quantization": args.quantize}
    made = SpeculativeDecoder.from_pretrained(
        args.model, speculative_config=json.loads(args.config), **loaded
    )
    items = read_items(args.prompts)
    chosen = [items[i * len(items) // args.first] for i in range(min(args.first, len(items)))]
    prompts = [
        item.ids
        for item in encode(chosen, made.tokenizer, made.target.vocab_size, None, args.tokens)
    ]
    differing = 0
    for temperature in (0.0, 0.7):
        params = SamplingParams(temperature=temperature, max_tokens=args.tokens, seed=0)
        plain = [made.plain.generate(ids, params) for ids in prompts]
        ways = {"alone": [made.generate(ids, params) for ids in prompts]}
        ways[f"in batches of {args.batch}"] = made.generate(prompts, params, batch_size=args.batch)
        for way, drafted in ways.items():
            told = compared(plain, drafted)
            differing += len(told["differ"])
            about = {**loaded, "config": args.config, "temperature": temperature, "way": way}
            print(json.dumps(about | told), flush=True)
    return int(differing > 0)


def compared(plain: list[Any], drafted: list[Any]) -> dict[str, Any]:
    """How many texts and tokens there were, what was accepted, and where texts part."""
    differ = []
    for number, (one, other) in enumerate(zip(plain, drafted, strict=True)):
        if one.token_ids != other.token_ids:
            pairs = enumerate(zip(one.token_ids, other.token_ids, strict=False))
            differ.append(
                {
                    "prompt": number,
                    "place": next((place for place, (a, b) in pairs if a != b), None),
                }
            )
    tokens, accepted = (
        sum(count)
        for count in zip(
            *((len(r.token_ids), r.stats.num_kept_tokens) for r in drafted), strict=True
        )
    )
    return {"texts": len(plain), "tokens": tokens, "accepted": accepted, "differ": differ}


if __name__ == "__main__":
    sys.exit(main())
