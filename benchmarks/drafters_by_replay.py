"""Tokens per round of every method that drafts from tokens alone, by replay of one recording: no timing, no model needed.

    python benchmarks/drafters_by_replay.py record --target MODEL --out recording.jsonl
    python benchmarks/drafters_by_replay.py report recording.jsonl

`record` lets the target write the answers, greedy and at T = 0.7, one JSON line an answer (a run goes on with the setting its
file lacks), and reads each once more for the target's best ids at every position. `report` replays
every method over the answers through the drafters' own code. A fixed draft is accepted exactly where it is the text, whatever
the temperature, because `match` emits the text of plain decoding for the seed.

A cell holds tokens a round (the round that reads the prompt included) with a bootstrap interval over prompts (10,000 resamples,
fixed seed, 90%), and drafted tokens a round, which the target has to read. Three prompts a cell say little, and it shows.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

PROMPTS = Path(__file__).parent / "prompts" / "four_tasks.jsonl"
SETTINGS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0.0}, "T=0.7": {"temperature": 0.7}}
NEW_TOKENS = 48
TOP_IDS = 8


def record(args: argparse.Namespace) -> None:
    """Write the answers of the settings that `args.out` does not have yet; all prompts of one setting in one padded batch."""
    import torch

    from draftproof.bench.workload import encode, read_items
    from draftproof.models.load import load_model

    torch.set_num_threads(args.threads)
    done = {line["setting"] for line in read(args.out)} if args.out.exists() else set()
    target = load_model(args.target, dtype=args.dtype)
    items = encode(read_items(args.prompts), target.tokenizer, target.vocab_size, target.max_length, args.tokens)
    for setting in SETTINGS:
        if setting in done:
            continue
        began = time.monotonic()
        answers = generate(target, [item.ids for item in items], args.tokens, SETTINGS[setting]["temperature"])
        numbers: dict[str, int] = {}
        lines = []
        for item, answer in zip(items, answers, strict=True):
            task = item.item.workload
            numbers[task] = number = numbers.get(task, 0) + 1
            texts = {"prompt": list(item.ids), "answer": answer, "top_ids": best_ids(target, [*item.ids, *answer])}
            lines.append({"task": task, "number": number, "setting": setting, "target": Path(args.target).name} | texts)
        with args.out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        print(f"{setting}: {sum(map(len, answers))} tokens in {time.monotonic() - began:.0f} s", flush=True)


def generate(target: Any, prompts: list[tuple[int, ...]], tokens: int, temperature: float) -> list[list[int]]:
    """The target's own answers by transformers, `tokens` long or up to the end token."""
    import torch

    longest, pad = max(map(len, prompts)), target.eos_token_ids[0]
    ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    torch.manual_seed(1)
    how: dict[str, Any] = {"do_sample": temperature > 0, "repetition_penalty": 1.0}
    how |= (
        {"temperature": temperature, "top_k": 0, "top_p": 1.0}
        if temperature > 0
        else {"top_k": None, "top_p": None, "temperature": None}
    )
    with torch.no_grad():
        out = target.module.generate(ids, attention_mask=mask, max_new_tokens=tokens, pad_token_id=pad, **how)
    ends = {*target.eos_token_ids}
    answers = [row[longest:].tolist() for row in out]
    return [answer[: next((i + 1 for i, token in enumerate(answer) if token in ends), len(answer))] for answer in answers]


def best_ids(target: Any, tokens: list[int]) -> list[list[int]]:
    """The target's TOP_IDS best ids after every token of a text."""
    from draftproof.models.protocol import Step

    session = target.open()
    found: list[list[int]] = []
    for first in range(0, len(tokens), 64):
        block = tokens[first : first + 64]
        (output,) = target.extend_many([Step(session, tuple(block), rows=tuple(range(len(block))))])
        found += output.logits.topk(TOP_IDS, dim=-1).indices.tolist()
    session.close()
    return found


def report(args: argparse.Namespace) -> None:
    """A table of tokens a round (and tokens the target reads a round) by method, task and setting."""
    import numpy as np

    lines = read(args.recording)
    cells = [(task, setting) for task in dict.fromkeys(line["task"] for line in lines) for setting in SETTINGS]
    print("| method | " + " | ".join(f"{task}, {setting}" for task, setting in cells) + " |")
    print("|---" * (len(cells) + 1) + "|")
    for method in replayable_methods():
        shown = []
        for task, setting in cells:
            played = [replayed(method, line) for line in lines if (line["task"], line["setting"]) == (task, setting)]
            tokens, rounds, nodes = np.asarray(played, float).T
            picks = np.random.default_rng(0).integers(0, len(tokens), (10_000, len(tokens)))
            low, high = np.quantile(tokens[picks].sum(1) / rounds[picks].sum(1), [0.05, 0.95])
            shown.append(f"{tokens.sum() / rounds.sum():.2f} ({low:.2f} to {high:.2f}), {nodes.sum() / rounds.sum():.1f}")
        print(f"| {method} | " + " | ".join(shown) + " |")


def replayable_methods() -> list[str]:
    """Every method of the list that drafts from tokens alone and needs no file."""
    from draftproof.decode.methods import METHODS

    return [name for name, method in METHODS.items() if method.replayable and not method.requires]


def replayed(method: str, line: dict[str, Any]) -> tuple[int, int, int]:
    """(tokens, rounds, drafted tokens) of one answer, round by round as decoding would go through it."""
    from draftproof.core.params import SamplingParams
    from draftproof.decode.build import make_drafter
    from draftproof.models.table import TableModel
    from draftproof.plan.forcing import Text
    from draftproof.plan.replay import replay

    size = 1 + max(*line["prompt"], *line["answer"])
    target = TableModel(lambda prefix: [1.0], vocab_size=size, name="recorded")
    config, drafter = make_drafter(None, {"method": method}, target, None, None)
    assert drafter is not None
    longest = config.num_speculative_tokens
    trace = replay(drafter, target, Text(tuple(line["prompt"]), tuple(line["answer"])), SamplingParams(), longest)
    at = rounds = nodes = 0
    while at < len(line["answer"]):
        nodes += int(trace.drafted[at])
        at += 1 + int(trace.accept[at].sum())
        rounds += 1
    return len(line["answer"]), rounds, nodes


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="let the target write the answers")
    recording.add_argument("--target", required=True)
    recording.add_argument("--out", type=Path, required=True)
    recording.add_argument("--prompts", type=Path, default=PROMPTS)
    recording.add_argument("--tokens", type=int, default=NEW_TOKENS)
    recording.add_argument("--dtype", default="bfloat16")
    recording.add_argument("--threads", type=int, default=1)
    reporting = verbs.add_parser("report", help="replay every method over the answers")
    reporting.add_argument("recording", type=Path)
    args = parser.parse_args()
    {"record": record, "report": report}[args.verb](args)


if __name__ == "__main__":
    main()
