"""Whether drafted text is plain text token for token on an engine: greedy, and sampled under
`match`, for drafts of several kinds, alone and in batches.

    python benchmarks/engine_identity.py MODEL --prompts FILE [--engine openvino --dtype bfloat16
        --quantize int8] [--first 200 --tokens 64 --batch 4 --temperatures 0 0.7]
        [--config NAME=JSON ...] [--out RAW]

FILE: prompts as `draftproof bench` reads them; they are taken evenly over its length. Without
--config: `auto` of suffix matches and the shipped head, chains of both kinds, and trees of the
head. Prints a JSON line for each temperature and way (and writes it behind those of RAW): how many
texts and tokens, and every text that differs with the place where it does and how far apart the
target's two best tokens are there. Exit code 1 when one differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from raw_lines import append

HEAD = {"method": "eagle3", "rule": "match"}
CONFIGS: dict[str, dict[str, Any]] = {
    "auto": {"method": "auto", "drafters": ["suffix", "eagle3"], "rule": "match"},
    "chain of suffix": {"method": "suffix", "rule": "match"},
    "chain of eagle3": HEAD | {"num_speculative_tokens": 4},
    "tree of eagle3": HEAD | {"tree": [2, 2, 1]},
}
BATCHED = "chain of suffix"
"""The kind of draft that is also written in batches; of given ones the first."""


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
    arguments.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7])
    arguments.add_argument("--config", action="append", default=[], metavar="NAME=JSON")
    arguments.add_argument("--out", type=Path)
    args = arguments.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    from draftproof.bench import encode, read_items
    from draftproof.models import load_engine

    loaded = {"engine": args.engine, "dtype": args.dtype, "quantization": args.quantize}
    target = load_engine(args.model, **loaded)
    items = read_items(args.prompts)
    chosen = [items[i * len(items) // args.first] for i in range(min(args.first, len(items)))]
    prompts = [
        item.ids for item in encode(chosen, target.tokenizer, target.vocab_size, None, args.tokens)
    ]
    differing = 0
    for told in compared_ways(target, prompts, args):
        differing += len(told["differ"])
        print(json.dumps(loaded | {"rows": target.rows} | told), flush=True)
        if args.out:
            append(args.out, loaded | {"model": args.model, "rows": target.rows} | told)
    return int(differing > 0)


def compared_ways(target: Any, prompts: list[Any], args: argparse.Namespace) -> Any:
    """What came out for each temperature, kind of draft, and way of writing."""
    from draftproof import SamplingParams, SpeculativeDecoder

    given = dict(each.split("=", 1) for each in args.config)
    configs = {name: json.loads(text) for name, text in given.items()} or CONFIGS
    made = {
        name: SpeculativeDecoder(None, target, target.tokenizer, speculative_config=config)
        for name, config in configs.items()
    }
    batched = BATCHED if BATCHED in made else next(iter(made))
    for temperature in args.temperatures:
        params = SamplingParams(temperature=temperature, max_tokens=args.tokens, seed=0)
        plain = [made[batched].plain.generate(ids, params) for ids in prompts]
        for name, decoder in made.items():
            drafted = [decoder.generate(ids, params) for ids in prompts]
            about = {"config": configs[name], "temperature": temperature, "way": name}
            yield about | compared(decoder, plain, drafted, params)
        drafted = made[batched].generate(prompts, params, batch_size=args.batch)
        about = {"config": configs[batched], "temperature": temperature}
        about["way"] = f"{batched}, in batches of {args.batch}"
        yield about | compared(made[batched], plain, drafted, params)


def compared(decoder: Any, plain: list[Any], drafted: list[Any], params: Any) -> dict[str, Any]:
    """How many texts and tokens there were, what was accepted, and where texts part."""
    from draftproof.bench.compare import first_difference

    differ = []
    for number, (one, other) in enumerate(zip(plain, drafted, strict=True)):
        part = first_difference(decoder, one, other, params)
        if part is not None:
            gap = round(part.top2_gap, 4)
            differ.append({"prompt": number, "place": part.position, "top2_gap": gap})
    tokens, accepted = (
        sum(count)
        for count in zip(
            *((len(r.token_ids), r.stats.num_kept_tokens) for r in drafted), strict=True
        )
    )
    return {"texts": len(plain), "tokens": tokens, "accepted": accepted, "differ": differ}


if __name__ == "__main__":
    sys.exit(main())
