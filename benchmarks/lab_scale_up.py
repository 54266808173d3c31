"""The lab's scale-up, step by step: 20 code and 20 chat answers, acceptance by workload, the cost of a step, what follows.

    python benchmarks/lab_scale_up.py --target Qwen/Qwen2.5-1.5B-Instruct --draft Qwen/Qwen2.5-0.5B-Instruct --out lab.json
    python benchmarks/lab_scale_up.py --tiny                             two tiny random models, seconds on any CPU
    python benchmarks/lab_scale_up.py --shapes --device cuda --out gpu.json      random weights in Qwen2.5's real shapes:
                                                                         costs are real, acceptance is by chance (synthetic)

1. The target answers, greedily and at temperature 0.7.  2. alpha: both models read the answers, overlap per workload.
3. c: 100 cached single-token steps of each model, medians.  4. Foretold: tokens per pass and speedup for each draft length.
5. Measured: the same, interleaved with plain decoding and transformers' assisted generation.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

K = (2, 4, 6)
TEMPERATURES = (0.0, 0.7)
STEPS = 100
SHAPES = {
    "1.5B": dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2),
    "0.5B": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2),
    "tiny": dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2),
    "tinier": dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2),
}
"""Qwen2.5's from the config.json of its repositories; the vocabulary is 151,936 there and 512 for the tiny ones."""


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    target, draft = models(options)
    prompts = prompts_of(options, target)
    results = []
    for temperature in options.temperature or TEMPERATURES:
        result = one_temperature(options, target, draft, prompts, temperature)
        results.append(result)
        print(json.dumps({key: result[key] for key in ("temperature", "alpha", "cost_ratio", "rows")}), flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="~/.cache/draftproof/models/qwen2.5-coder-1.5b-instruct.gguf")
    parser.add_argument("--draft", default="~/.cache/draftproof/models/qwen2.5-coder-0.5b-instruct.gguf")
    parser.add_argument("--tiny", action="store_true", help="tiny random models instead of real ones")
    parser.add_argument("--shapes", action="store_true", help="random weights in real shapes; acceptance by chance")
    parser.add_argument("--synthetic-alpha", default="0.8", help="with --shapes and --tiny: acceptance by chance")
    parser.add_argument("--prompts", type=int, default=20, help="answers a workload")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(K), help="draft lengths")
    parser.add_argument("--temperature", type=float, action="append", help="only these; by default 0 and 0.7")
    parser.add_argument("--file", type=Path, help="prompts of your own, with a workload on every line")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    return parser.parse_args(argv)


def models(options: argparse.Namespace) -> tuple[Any, Any]:
    """Target and draft model: loaded, or made from shapes with random weights."""
    from draftproof.models.load import load_model

    if options.tiny:
        return random_model("tiny", "cpu", "float32", 512), random_model("tinier", "cpu", "float32", 512)
    if options.shapes:
        device, dtype = ("cuda", "bfloat16") if options.device == "auto" else (options.device, "bfloat16")
        return tuple(random_model(name, device, dtype, 151936) for name in ("1.5B", "0.5B"))  # type: ignore[return-value]
    names = (str(Path(name).expanduser()) if name.startswith("~") else name for name in (options.target, options.draft))
    return tuple(load_model(name, dtype=options.dtype, device=options.device) for name in names)  # type: ignore[return-value]


def random_model(shape: str, device: str, dtype: str, vocab_size: int) -> Any:
    """A Qwen2 model with random weights: for costs, which do not depend on them."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from draftproof.models.hf import HFModel

    config = Qwen2Config(
        vocab_size=vocab_size,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **SHAPES[shape],
    )
    torch.manual_seed(0)
    with torch.device(device):
        module = Qwen2ForCausalLM(config).to(getattr(torch, dtype))
    return HFModel(module, name=f"random {shape}")


def prompts_of(options: argparse.Namespace, target: Any) -> list[Any]:
    """So many prompts of code and of chat, as token ids. Random models read numbers instead of words."""
    from draftproof.bench.workload import Encoded, Item, builtin_items, encode, read_items

    if target.tokenizer is None:
        count = min(options.prompts, 4)
        return [
            Encoded(
                Item("random ids", name, f"{name} {i}"), tuple((i * 37 + j * 11 + seed) % target.vocab_size for j in range(24))
            )
            for seed, name in enumerate(("code-editing", "chat"))
            for i in range(count)
        ]
    if options.file is not None:
        items = read_items(options.file)
    else:
        items = []
        for name in ("code-editing", "chat"):
            texts = builtin_items([name])
            items += [texts[i % len(texts)] for i in range(options.prompts)][: options.prompts]
    return encode(items, target.tokenizer, target.vocab_size, target.max_length, options.tokens)


def single_steps(model: Any, context: tuple[int, ...]) -> float:
    """Median seconds of 100 cached single-token steps."""
    from statistics import median

    from draftproof.plan.costs import PassTimer

    timer = PassTimer(model, context, 1)
    try:
        return median(timer.visit(repeats=STEPS).target[1])
    finally:
        timer.close()


def one_temperature(
    options: argparse.Namespace, target: Any, draft: Any, prompts: list[Any], temperature: float
) -> dict[str, Any]:
    """Steps 1 to 5 at one temperature."""
    from draftproof import SamplingParams, expected_speedup, expected_tokens
    from draftproof.decode.config import SpeculativeConfig
    from draftproof.plan.candidate import Candidate
    from draftproof.plan.plan import make_plan

    synthetic = float(options.synthetic_alpha) if options.tiny or options.shapes else None
    params = SamplingParams(temperature=temperature, max_tokens=options.tokens, ignore_eos=True, seed=1)
    candidate = Candidate(SpeculativeConfig.from_dict({"method": "draft_model", "model": "draft"}), draft)
    plan = make_plan(target, [candidate], prompts, params, options.lengths)
    foretold = plan.drafters[0]
    cost_ratio = single_steps(draft, prompts[0].ids) / single_steps(target, prompts[0].ids)
    alpha = foretold.alpha.point if synthetic is None else synthetic
    measured = measure_arms(options, target, draft, prompts, params, synthetic)
    rows = []
    for choice in sorted(foretold.choices, key=lambda c: c.num_speculative_tokens):
        k = choice.num_speculative_tokens
        verify = float(foretold.costs.curve()(k + 1))
        rows.append(
            {
                "k": k,
                "tokens_per_pass_foretold": choice.tokens_per_round if synthetic is None else float(expected_tokens(alpha, k)),
                "speedup_foretold": choice.speedup.point if synthetic is None else None,
                "speedup_iid": float(expected_speedup(alpha, k, cost_ratio, verify)),
                "verify_ratio": verify,
                **{name: figures.get(k) for name, figures in measured.items()},
            }
        )
    return {
        "temperature": temperature,
        "alpha": {"mean": alpha, "by_workload": dict(foretold.by_workload), "synthetic": synthetic is not None},
        "cost_ratio": cost_ratio,
        "rows": rows,
        "provenance": _where(target),
    }


def measure_arms(
    options: argparse.Namespace, target: Any, draft: Any, prompts: list[Any], params: Any, synthetic: float | None
) -> dict[str, dict[int, Any]]:
    """Measured tokens per pass and speedup by draft length, ours and transformers'."""
    from draftproof import SpeculativeDecoder
    from draftproof.bench.arms import PLAIN, OurArm
    from draftproof.bench.hf_arms import HFArm
    from draftproof.bench.run import measure
    from draftproof.bench.summary import arm_summary
    from draftproof.bench.synthetic import make_synthetic

    arms: list[Any] = [OurArm(PLAIN, SpeculativeDecoder(None, target, target.tokenizer).plain)]
    lengths: dict[str, int] = {}
    for k in options.lengths:
        decoder = SpeculativeDecoder(draft, target, target.tokenizer, speculative_config={"num_speculative_tokens": k})
        if synthetic is not None:
            decoder = make_synthetic(decoder, (synthetic,), params.temperature == 0)
        arms.append(OurArm(f"ours k={k}" + (" (synthetic acceptance, lossy)" if synthetic else ""), decoder))
        lengths[arms[-1].name] = k
        if synthetic is None:
            arms.append(HFArm("assisted", target, draft=draft, length=k))
            lengths[arms[-1].name] = k
    few = prompts if synthetic is None else prompts[:4]
    measurement = measure(arms, few, params)
    found: dict[str, dict[int, Any]] = {"tokens_per_pass": {}, "speedup": {}, "speedup_transformers": {}}
    for arm in arms[1:]:
        summary, k = arm_summary(measurement, arm), lengths[arm.name]
        if isinstance(arm, HFArm):
            found["speedup_transformers"][k] = summary["decode_ratio_of_totals"]
        else:
            found["tokens_per_pass"][k] = summary["stats"]["tokens_per_round"]
            found["speedup"][k] = summary["decode_ratio_of_totals"]
    return found


def _where(target: Any) -> dict[str, Any]:
    from draftproof.bench.provenance import provenance

    return provenance(target, seed=1)


if __name__ == "__main__":
    sys.exit(main())
