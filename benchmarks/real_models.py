"""Real pairs, plain and speculative, ours and transformers', interleaved: speed, agreement, and
time outside the forwards.

    python benchmarks/real_models.py smollm2 --out benchmarks/results/smollm2.jsonl
    python benchmarks/real_models.py qwen --target TARGET --draft DRAFT --out
        benchmarks/results/qwen.jsonl
    python benchmarks/real_models.py report benchmarks/results/*.jsonl

One JSON line a run, written as it ends; a run already in the file is not repeated, so an
interrupted benchmark goes on. Arms of one prompt follow each other with the order rotated between
repetitions. Every arm runs the same modules, the same prompt and exactly as many new tokens (end
tokens banned). "Outside" is wall time less the time inside the modules' forward methods, the same
instrument for every arm, per target forward; the forward that reads the prompt is counted apart.
"""

from __future__ import annotations

import argparse
import colorsys
import fnmatch
import inspect
import statistics
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from raw_lines import append, read, read_if_there

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.decode.first_difference import first_difference
from draftproof.models.load import load_model
from draftproof.report.provenance import provenance

NEW_TOKENS = 40
WARM_UP_TOKENS = 6
DRAFTS = {"smollm2": 10, "qwen": 4}
SETTINGS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "T=0.7": {"temperature": 0.7},
}
TOP_P: dict[str, dict[str, float]] = {"T=0.7, top_p=0.9": {"temperature": 0.7, "top_p": 0.9}}
CHAT = (
    "What should I look for when I buy a used bicycle?",
    "Explain in a few sentences why the sky is blue.",
    "Write a short, friendly note that declines an invitation to a birthday party.",
)


def prompts() -> dict[str, str]:
    """Three code edits over functions of the standard library, three questions."""
    functions = (textwrap.indent, colorsys.rgb_to_hls, fnmatch.filter)
    edits = {
        f"code {f.__name__}": (
            "Add type hints to this function, change nothing "
            f"else.\n\n```python\n{inspect.getsource(f)}```"
        )
        for f in functions
    }
    return edits | {f"chat {i}": text for i, text in enumerate(CHAT)}


class Stopwatch:
    """Seconds inside the forward methods of modules, and how often the target's ran."""

    def __init__(self, target: Any, draft: Any) -> None:
        self._target, self._modules = target, [m for m in (target, draft) if m is not None]
        self.warm = False
        self.reset()

    def reset(self) -> None:
        self.seconds = self.first = 0.0
        self.target_calls = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        originals = [(module, module.forward) for module in self._modules]
        for module, forward in originals:
            module.forward = self._timed(module, forward)
        try:
            yield
        finally:
            for module, _ in originals:
                del module.forward

    def _timed(self, module: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            output = forward(*args, **kwargs)
            spent = time.perf_counter() - begin
            self.seconds += spent
            if module is self._target:
                self.first = self.first or spent
                self.target_calls += 1
            return output

        timed.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
        return timed


def arms(
    name: str, decoder: SpeculativeDecoder, target: Any, draft: Any
) -> dict[str, Callable[[tuple[int, ...], dict[str, float]], Any]]:
    """The arms of a pair: each takes prompt ids and sampling settings, and gives token ids (ours: a
    Result)."""

    def ours(made: Any) -> Callable[..., Any]:
        return lambda ids, settings, count=NEW_TOKENS: made.generate(
            list(ids), SamplingParams(max_tokens=count, min_tokens=count, seed=1, **settings)
        )

    def theirs(**options: Any) -> Callable[..., Any]:
        def run(ids: tuple[int, ...], settings: dict[str, float], count: int = NEW_TOKENS) -> Any:
            torch.manual_seed(1)
            sampled = settings["temperature"] > 0
            given = dict(settings, top_k=0) if sampled else {}
            tensor = torch.tensor([ids])
            out = target.module.generate(
                tensor,
                attention_mask=torch.ones_like(tensor),
                do_sample=sampled,
                max_new_tokens=count,
                min_new_tokens=count,
                pad_token_id=target.eos_token_ids[0],
                **given,
                **options,
            )
            return tuple(out[0, len(ids) :].tolist())

        return run

    if draft is None:
        speculative = theirs(prompt_lookup_num_tokens=DRAFTS[name], max_matching_ngram_size=3)
    else:
        config = draft.module.generation_config
        config.num_assistant_tokens, config.num_assistant_tokens_schedule = DRAFTS[name], "constant"
        config.assistant_confidence_threshold = 0.0
        speculative = theirs(assistant_model=draft.module)
    return {
        "plain": ours(decoder.plain),
        "speculative": ours(decoder),
        "transformers plain": theirs(),
        "transformers speculative": speculative,
    }


def measure(args: argparse.Namespace) -> bool:
    """Run what is missing from `args.out`, for at most `args.budget` seconds; True when nothing is
    missing any more."""
    began = time.monotonic()
    target = load_model(args.target, dtype=args.dtype)
    draft = None if args.draft is None else load_model(args.draft, dtype=args.dtype)
    config = {"num_speculative_tokens": DRAFTS[args.what]} | (
        {"method": "ngram"} if draft is None else {}
    )
    decoder = SpeculativeDecoder(draft, target, target.tokenizer, speculative_config=config)
    watch = Stopwatch(target.module, None if draft is None else draft.module)
    chosen = {
        name: arm
        for name, arm in arms(args.what, decoder, target, draft).items()
        if not args.arm or name in args.arm
    }
    done = {key(run) for run in read_if_there(args.out)}
    for number, prompt, text, setting, values in cells(args):
        turn = [*chosen][number % len(chosen) :] + [*chosen][: number % len(chosen)]
        todo = [arm for arm in turn if (args.what, prompt, setting, arm, number) not in done]
        if todo and time.monotonic() - began > args.budget:
            return False
        ids = chat_ids(target.tokenizer, text)
        if todo and not watch.warm:
            for arm in chosen.values():
                arm(ids, values, WARM_UP_TOKENS)
            watch.warm = True
        results: dict[str, Any] = {}
        for arm in todo:
            run = one(watch, chosen[arm], ids, values)
            results[arm] = run.pop("result")
            run |= {
                "pair": args.what,
                "prompt": prompt,
                "setting": setting,
                "arm": arm,
                "repetition": number,
            }
            if (
                setting == "greedy"
                and {"plain", "speculative"} <= {*results}
                and arm in ("plain", "speculative")
            ):
                run["difference"] = difference(decoder, results["plain"], results["speculative"])
            append(args.out, run | {"provenance": provenance(target)})
            print(
                (
                    f"{args.what} {prompt} {setting} {arm} {number}: "
                    f"{run['tokens_per_second']:.2f} tok/s"
                ),
                flush=True,
            )
    return True


def cells(args: argparse.Namespace) -> Iterator[tuple[int, str, str, str, dict[str, float]]]:
    """(repetition, prompt's name, prompt, setting, its values), repetitions outermost."""
    settings = SETTINGS | (TOP_P if args.what == "smollm2" else {})
    for number in range(args.repeat):
        for prompt, text in prompts().items():
            for setting, values in settings.items():
                if not args.setting or setting in args.setting:
                    yield number, prompt, text, setting, values


def one(
    watch: Stopwatch, arm: Callable[..., Any], ids: tuple[int, ...], values: dict[str, float]
) -> dict[str, Any]:
    """One timed run."""
    watch.reset()
    with watch.running():
        begin = time.perf_counter()
        result = arm(ids, values)
        seconds = time.perf_counter() - begin
    tokens = result if isinstance(result, tuple) else result.token_ids
    run = {
        "tokens": list(tokens),
        "seconds": seconds,
        "tokens_per_second": len(tokens) / seconds,
        "forward_seconds": watch.seconds,
        "target_forwards": watch.target_calls,
        "first_target_forward_seconds": watch.first,
        "outside_ms_per_target_forward": 1000 * (seconds - watch.seconds) / watch.target_calls,
        "result": result,
    }
    return run | ({} if isinstance(result, tuple) else {"stats": result.stats.as_dict()})


def difference(decoder: SpeculativeDecoder, plain: Any, speculative: Any) -> dict[str, Any] | None:
    """Where the greedy texts part, and the target's top-2 gap there."""
    found = first_difference(
        decoder,
        plain.prompt_token_ids,
        plain.token_ids,
        speculative.token_ids,
        SamplingParams(temperature=0),
    )
    return None if found is None else {"position": found.position, "top2_gap": found.top2_gap}


def chat_ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    from draftproof.decode.prompts import chat_ids as ids

    return tuple(ids([{"role": "user", "content": text}], tokenizer))


def key(run: dict[str, Any]) -> tuple[Any, ...]:
    return (run["pair"], run["prompt"], run["setting"], run["arm"], run["repetition"])


def interval(ratios: list[float], level: float = 0.9) -> tuple[float, float, float]:
    """Median and bootstrap interval (10,000 resamples, fixed seed)."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(ratios, (10_000, len(ratios))), axis=1)
    low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
    return statistics.median(ratios), float(low), float(high)


def report(paths: list[Path]) -> None:
    """Tables in Markdown; what a file has no runs for is left empty."""
    runs = [run for path in paths for run in read(path)]
    settings = list(dict.fromkeys((run["pair"], run["setting"]) for run in runs))
    print(
        "| pair, prompts, sampling | plain tok/s | ours / plain | ours / transformers' "
        "method | tokens per round | acceptance |"
    )
    print("|---|---|---|---|---|---|")
    for pair, setting in settings:
        for kind in ("code", "chat"):
            mine = [r for r in of(runs, pair, setting) if r["prompt"].startswith(kind)]
            if mine:
                print(row(pair, kind, setting, mine))
    print(
        "\n| pair, sampling | arm | target step, ms | outside, ms a target forward | "
        "draft / verify / rest, ms a round |"
    )
    print("|---|---|---|---|---|")
    for pair, setting in settings:
        single = median([step_ms(r) for r in of(runs, pair, setting, "plain")])
        for arm in dict.fromkeys(run["arm"] for run in of(runs, pair, setting)):
            mine = of(runs, pair, setting, arm)
            outside = statistics.median(r["outside_ms_per_target_forward"] for r in mine)
            share = f"{outside:.2f}" + (f" ({100 * outside / single:.1f}%)" if single else "")
            print(
                f"| {pair}, {setting} | {arm} | {shown(single, '.1f')} | {share} | {parts(mine)} |"
            )
    print("\ngreedy against transformers' same method, every prompt and repetition:")
    for pair in dict.fromkeys(pair for pair, _ in settings):
        ratios = paired(runs, pair, "greedy", "", "speculative", "transformers speculative")
        found = (
            "median {:.3f}, 90% interval {:.3f} to {:.3f}".format(*interval(ratios))
            if ratios
            else "not measured"
        )
        print(f"- {pair}: {found}")
    print("\ngreedy texts that part from plain decoding's:")
    for r in runs:
        if r.get("difference") and r["repetition"] == 0:
            where, gap = r["difference"]["position"], r["difference"]["top2_gap"]
            print(f"- {r['pair']}, {r['prompt']}: token {where}, top-2 gap {gap:.4f}")


def of(
    runs: list[dict[str, Any]], pair: str, setting: str, arm: str | None = None
) -> list[dict[str, Any]]:
    """The runs of one pair and setting, of one arm if it is named."""
    return [
        r for r in runs if (r["pair"], r["setting"]) == (pair, setting) and arm in (None, r["arm"])
    ]


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def shown(value: float | None, spec: str) -> str:
    return "" if value is None else format(value, spec)


def row(pair: str, kind: str, setting: str, runs: list[dict[str, Any]]) -> str:
    plain = median([r["tokens_per_second"] for r in runs if r["arm"] == "plain"])
    stats = [r["stats"] for r in runs if r["arm"] == "speculative"]
    rounds, drafted = (sum(s[name] for s in stats) for name in ("num_rounds", "num_draft_tokens"))
    per_round = sum(s["num_emitted_tokens"] for s in stats) / rounds if rounds else None
    rate = sum(s["num_accepted_tokens"] for s in stats) / drafted if drafted else None
    against = [
        paired(runs, pair, setting, kind, "speculative", other)
        for other in ("plain", "transformers speculative")
    ]
    ratios = " | ".join(
        "{:.2f} ({:.2f} to {:.2f})".format(*interval(found)) if found else "" for found in against
    )
    return (
        f"| {pair}, {kind}, {setting} | {shown(plain, '.1f')} | {ratios} | "
        f"{shown(per_round, '.2f')} | {shown(rate, '.2f')} |"
    )


def paired(
    runs: list[dict[str, Any]], pair: str, setting: str, kind: str, one_arm: str, other: str
) -> list[float]:
    """Ratios of tokens per second within one prompt and repetition."""
    by = {key(r): r["tokens_per_second"] for r in runs}
    keys = [
        k
        for k in by
        if k[0] == pair and k[1].startswith(kind) and k[2] == setting and k[3] == one_arm
    ]
    return [by[k] / by[(*k[:3], other, k[4])] for k in keys if (*k[:3], other, k[4]) in by]


def step_ms(run: dict[str, Any]) -> float:
    """One single-token target forward of a plain run, the first (which reads the prompt) left
    out."""
    return (
        1000
        * (run["forward_seconds"] - run["first_target_forward_seconds"])
        / (run["target_forwards"] - 1)
    )


def parts(runs: list[dict[str, Any]]) -> str:
    stats = [r["stats"] for r in runs if "stats" in r]
    if not stats:
        return ""
    rounds = sum(s["num_rounds"] - 1 for s in stats) or 1
    split = (
        1000 * sum(s[f"{part}_seconds"] for s in stats) / rounds
        for part in ("draft", "verify", "rest")
    )
    return " / ".join(f"{value:.1f}" for value in split)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["smollm2", "qwen", "report"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--draft")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument(
        "--setting", action="append", help="only this sampling setting (repeatable)"
    )
    parser.add_argument("--arm", action="append", help="only this arm (repeatable)")
    parser.add_argument(
        "--budget", type=float, default=1e9, help="stop after this many seconds; run again to go on"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/runs.jsonl"))
    args = parser.parse_args()
    if args.what == "report":
        report(args.files)
        return 0
    if args.what == "qwen" and not args.draft:
        parser.error("qwen needs --target and --draft: a folder or a GGUF file of each model")
    torch.set_num_threads(args.threads)
    return 0 if measure(args) else 3


if __name__ == "__main__":
    raise SystemExit(main())
