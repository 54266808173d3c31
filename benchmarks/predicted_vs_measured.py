"""Predicted against measured speedup, cell by cell: three pairs x two workloads x two temperatures x four draft lengths.

    python benchmarks/predicted_vs_measured.py --out cells.jsonl
    python benchmarks/predicted_vs_measured.py --out cells.jsonl --table cells.md

A cell is one JSON line, written as soon as it is measured; a run goes on after the cells its file has. `--only` takes some
pairs, `--seconds` stops before a new group when the time is used up. The four lengths of one pair, workload and temperature
are one group: planned once (from the texts and the costs, never from the measured arms), then measured interleaved.

The weak draft is the target's own first layers with its norm and output layer, untrained: there the right answer is "don't".
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

K = (1, 2, 4, 8)
TEMPERATURES = (0.0, 0.7)
WORKLOADS = ("code-editing", "chat")
PAIRS = ("smollm2+ngram", "smollm2+own layers", "qwen 0.5B -> 1.5B")
WEAK_LAYERS = 8


def main() -> int:
    options = arguments()
    done = read(options.out)
    if options.table is not None:
        options.table.write_text(markdown(done), encoding="utf-8")
        return 0
    began = time.monotonic()
    have = {key(cell) for cell in done}
    for pair in options.only or PAIRS:
        groups = [(w, t) for w in WORKLOADS for t in TEMPERATURES if any((pair, w, t, k) not in have for k in K)]
        if not groups:
            continue
        target, candidate = load(pair, options)
        for workload, temperature in groups:
            if time.monotonic() - began > options.seconds:
                print("time is used up; run again to go on", file=sys.stderr)
                return 0
            for cell in group(pair, target, candidate, workload, temperature, options):
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(cell) + "\n")
                print(line(cell), file=sys.stderr, flush=True)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, gone on with")
    parser.add_argument("--table", type=Path, help="write the table of what --out has, measure nothing")
    parser.add_argument("--only", action="append", choices=PAIRS)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no group after this many")
    parser.add_argument("--prompts", type=int, default=3, help="prompts a workload")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--smollm2", default="smollm2-135m-instruct")
    parser.add_argument("--qwen-target", default="~/.cache/draftproof/models/qwen2.5-coder-1.5b-instruct.gguf")
    parser.add_argument("--qwen-draft", default="~/.cache/draftproof/models/qwen2.5-coder-0.5b-instruct.gguf")
    return parser.parse_args()


def load(pair: str, options: argparse.Namespace) -> tuple[Any, Any]:
    """The target and the candidate drafter."""
    import torch

    from draftproof.decode.config import SpeculativeConfig
    from draftproof.models.hf import HFModel
    from draftproof.models.load import load_model
    from draftproof.plan.plan import Candidate

    torch.set_num_threads(options.threads)
    if pair.startswith("qwen"):
        target, draft = (
            load_model(str(Path(name).expanduser()), dtype=options.dtype) for name in (options.qwen_target, options.qwen_draft)
        )
        name = "0.5B"
    else:
        target = load_model(options.smollm2, dtype=options.dtype)
        draft, name = None, ""
    if pair == "smollm2+ngram":
        return target, Candidate(SpeculativeConfig.from_dict({"method": "ngram"}))
    if pair == "smollm2+own layers":
        draft, name = HFModel(first_layers(target.module, WEAK_LAYERS), target.tokenizer), f"first {WEAK_LAYERS} layers"
    return target, Candidate(SpeculativeConfig.from_dict({"method": "draft_model", "model": name}), draft)


def first_layers(module: Any, count: int) -> Any:
    """The same model with its first `count` layers only; weights are shared, nothing is copied."""
    config = copy.deepcopy(module.config)
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:count]
    import torch

    with torch.device("meta"):
        small = type(module)(config)
    state = {name: tensor for name, tensor in module.state_dict(keep_vars=True).items() if name in small.state_dict()}
    small.load_state_dict(state, assign=True)
    small.model.rotary_emb = module.model.rotary_emb
    small.generation_config = copy.deepcopy(module.generation_config)
    return small.eval()


def group(
    pair: str, target: Any, candidate: Any, workload: str, temperature: float, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Plan, then measure: one cell for each draft length."""
    from draftproof import SamplingParams, SpeculativeDecoder
    from draftproof.bench.arms import PLAIN, OurArm
    from draftproof.bench.provenance import provenance
    from draftproof.bench.run import measure
    from draftproof.bench.summary import arm_summary
    from draftproof.bench.workload import builtin_items, choose, encode
    from draftproof.plan.plan import make_plan

    params = SamplingParams(temperature=temperature, max_tokens=options.tokens, ignore_eos=True, seed=1)
    items = choose(builtin_items([workload]), options.prompts)
    prompts = encode(items, target.tokenizer, target.vocab_size, target.max_length, options.tokens)
    plan = make_plan(target, [candidate], prompts, params, K, repeats=5)
    reference = SpeculativeDecoder(None, target, target.tokenizer)
    arms: list[Any] = [OurArm(PLAIN, reference.plain)]
    for k in K:
        config = {"method": candidate.config.method, "model": candidate.config.model, "num_speculative_tokens": k}
        arms.append(OurArm(f"k={k}", SpeculativeDecoder(candidate.draft, target, target.tokenizer, speculative_config=config)))
    measurement = measure(arms, prompts, params, options.repeat)
    where = provenance(target, seed=1)
    for choice in plan.drafters[0].choices:
        arm = next(a for a in arms if a.name == f"k={choice.num_speculative_tokens}")
        summary = arm_summary(measurement, arm)
        yield {
            "pair": pair,
            "workload": workload,
            "temperature": temperature,
            "k": choice.num_speculative_tokens,
            "predicted": choice.speedup.point,
            "low": choice.speedup.low,
            "high": choice.speedup.high,
            "iid": choice.iid_speedup,
            "predicted_tokens_per_round": choice.tokens_per_round,
            "measured": summary["decode_ratio_of_totals"],
            "measured_tokens_per_round": summary["stats"]["tokens_per_round"],
            "milliseconds_per_round": summary["milliseconds_per_round"],
            "plain_seconds_per_token": arm_summary(measurement, arms[0])["seconds_per_token"],
            "recommended": plan.best is not None and plan.best.num_speculative_tokens == choice.num_speculative_tokens,
            "alpha": plan.drafters[0].alpha.point,
            "cost_ratio": plan.drafters[0].costs.cost_ratio,
            "verify_ratio": float(plan.drafters[0].costs.passes.curve()(choice.num_speculative_tokens + 1)),
            "target_step_ms": 1000 * plan.drafters[0].costs.target_step,
            "spread": plan.drafters[0].costs.passes.spread(),
            "outside_ms": [1000 * x for x in vars(plan.drafters[0].costs.outside).values()],
            "calibrations": list(measurement.calibrations),
            "settings": {name: getattr(options, name) for name in ("prompts", "tokens", "repeat", "dtype", "threads")},
            "provenance": {
                key: where[key] for key in ("torch", "transformers", "processor", "cpus", "threads", "dtype", "commit")
            },
        }


def read(path: Path) -> list[dict[str, Any]]:
    """The finished cells; an unfinished last line is left out."""
    if not path.exists():
        return []
    cells = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            cells.append(json.loads(text))
        except ValueError:
            print(f"{path}: an unfinished line was left out", file=sys.stderr)
    return cells


def key(cell: dict[str, Any]) -> tuple[str, str, float, int]:
    return cell["pair"], cell["workload"], cell["temperature"], cell["k"]


def line(cell: dict[str, Any]) -> str:
    inside = cell["low"] <= cell["measured"] <= cell["high"]
    error = cell["predicted"] / cell["measured"] - 1
    return (
        f"| {cell['pair']} | {cell['workload']} | {cell['temperature']:g} | {cell['k']} "
        f"| {cell['predicted']:.2f} ({cell['low']:.2f}-{cell['high']:.2f}) | {cell['iid']:.2f} | {cell['measured']:.2f} "
        f"| {cell['predicted_tokens_per_round']:.2f} / {cell['measured_tokens_per_round']:.2f} | {error:+.0%} "
        f"| {'yes' if inside else 'no'} | {'best' if cell['recommended'] else ''} |"
    )


def markdown(cells: list[dict[str, Any]]) -> str:
    """The table and the counts it is judged by."""
    if not cells:
        return "No cell is measured yet.\n"
    inside = sum(c["low"] <= c["measured"] <= c["high"] for c in cells)
    near = sum(abs(c["predicted"] / c["measured"] - 1) <= 0.10 for c in cells)
    narrow = sum((c["high"] - c["low"]) / 2 <= 0.15 * c["predicted"] for c in cells)
    wrong = [c for c in cells if c["recommended"] and c["measured"] < 0.97]
    where = cells[-1]["provenance"]
    head = [
        "# Predicted against measured",
        "",
        f"{len(cells)} of {len(PAIRS) * len(WORKLOADS) * len(TEMPERATURES) * len(K)} cells. Speedup after the first round, all "
        "prompts of a cell together; the interval is the plan's, nominal 90%.",
        "",
        f"- the interval holds the measured speedup in {inside} of {len(cells)} cells",
        f"- the point is within 10% in {near} of {len(cells)}",
        f"- half the interval is at most 15% of the point in {narrow} of {len(cells)}",
        f"- recommended arms measured more than 3% slower than plain decoding: {len(wrong)}",
        "",
        f"{where['processor']}, {where['threads']} threads, {where['dtype']}, torch {where['torch']}; "
        f"settings of the last cell: {cells[-1]['settings']}.",
        "",
        "| pair | workload | T | k | predicted | i.i.d. | measured | tokens/round predicted / measured | error | inside | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(line(cell) for cell in cells)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
