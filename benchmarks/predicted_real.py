"""Predicted Outputs on a real model: 20 edits out of this repository's history, every method on
every edit, one after another.

    python benchmarks/predicted_real.py run RAW --at COMMIT [--target MODEL] [--seconds 300]
    python benchmarks/predicted_real.py report RAW

The chat holds the block and the request; the prediction is the block as it was. Greedy, float32,
drafts of up to 16 tokens by every method; as many tokens as the edited block has and 8 more, at
most `--tokens`. A small model often does not do what was asked: `like the edit` says how much of
the text it wrote is the block after the commit. A run goes on with the edits that RAW lacks."""

from __future__ import annotations

import argparse
import difflib
import time
from collections import Counter
from pathlib import Path
from typing import Any

from raw_lines import append, read, read_if_there
from real_edits import Edit, real_edits

EACH = {"renamed": 8, "added": 7, "moved": 5}
METHODS: dict[str, dict[str, Any]] = {
    "ngram": {"method": "ngram", "num_speculative_tokens": 16},
    "suffix": {"method": "suffix", "num_speculative_tokens": 16},
    "prediction": {"method": "prediction", "num_speculative_tokens": 16},
}
PLAIN = "plain"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = arguments.add_subparsers(dest="verb", required=True)
    run_it, report_it = verbs.add_parser("run"), verbs.add_parser("report")
    for verb in (run_it, report_it):
        verb.add_argument("raw", type=Path)
    run_it.add_argument("--at", required=True, help="the newest commit that is looked at")
    run_it.add_argument("--target", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    run_it.add_argument("--repository", type=Path, default=Path(__file__).parent.parent)
    run_it.add_argument("--tokens", type=int, default=192)
    run_it.add_argument("--seconds", type=float, default=300, help="no edit begins after them")
    args = arguments.parse_args()
    if args.verb == "run":
        run(args)
    else:
        report(read(args.raw))


def run(args: argparse.Namespace) -> None:
    from draftproof import SpeculativeDecoder

    end, done = time.monotonic() + args.seconds, read_if_there(args.raw)
    usual = SpeculativeDecoder.from_pretrained(
        args.target, dtype="float32", speculative_config={"method": "ngram"}
    )
    decoders: dict[str, Any] = {
        name: SpeculativeDecoder(None, usual.target, usual.tokenizer, speculative_config=config)
        for name, config in METHODS.items()
    }
    decoders = {PLAIN: usual.plain} | decoders
    names = list(decoders)
    for number, edit in enumerate(real_edits(args.repository, args.at, EACH)):
        if any(line["edit"] == number for line in done):
            continue
        if time.monotonic() > end:
            break
        turned = names[number % len(names) :] + names[: number % len(names)]
        lines = [one(edit, name, decoders[name], args.tokens) | {"edit": number} for name in turned]
        append(args.raw, *lines)
        print(number, edit.kind, edit.path, flush=True)


def one(edit: Edit, name: str, decoder: Any, most: int) -> dict[str, Any]:
    """One text of one method, as a line."""
    from draftproof import SamplingParams

    asked = f"{edit.request}\nWrite the whole code again, nothing else.\n\n{edit.before}"
    limit = min(len(decoder.tokenizer.encode(edit.after)) + 8, most)
    params = SamplingParams(
        temperature=0,
        max_tokens=limit,
        prediction=edit.before if name == "prediction" else None,
    )
    begin = time.perf_counter()
    result = decoder.generate([{"role": "user", "content": asked}], params)
    seconds = time.perf_counter() - begin
    done = result.outputs[0]
    return {
        "kind": edit.kind,
        "commit": edit.commit,
        "path": edit.path,
        "method": name,
        "prompt_tokens": len(result.prompt_token_ids),
        "token_ids": list(done.token_ids),
        "rounds": len(done.rounds),
        "drafted": sum(len(record.draft_tokens) for record in done.rounds),
        "accepted": sum(record.num_accepted_tokens for record in done.rounds),
        "seconds": seconds,
        "first_token_seconds": done.first_token_seconds,
        "like_the_edit": difflib.SequenceMatcher(None, done.text, edit.after).ratio(),
        "like_the_block": difflib.SequenceMatcher(None, done.text, edit.before).ratio(),
    }


def report(lines: list[dict[str, Any]]) -> None:
    """Tokens a pass and speed to plain, by kind and over all; and whether the texts are equal."""
    plain = {line["edit"]: line for line in lines if line["method"] == PLAIN}
    differ = [line for line in lines if line["token_ids"] != plain[line["edit"]]["token_ids"]]
    print(f"{len(plain)} edits {dict(Counter(line['kind'] for line in plain.values()))};", end=" ")
    print(f"{len(differ)} of {len(lines) - len(plain)} texts differ from plain decoding's")
    likes = [line["like_the_edit"] for line in plain.values()]
    print(f"like the edit: {sum(likes) / len(likes):.2f} on average")
    print(
        "\n| edits | method | tokens a pass | accepted | to plain, whole | after the first token |"
    )
    print("|---|---|---|---|---|---|")
    for kind in (*EACH, "all"):
        for name in METHODS:
            mine = [x for x in lines if x["method"] == name and kind in (x["kind"], "all")]
            if mine:
                print(row(kind, name, mine, [plain[line["edit"]] for line in mine]))


def row(kind: str, name: str, mine: list[dict[str, Any]], plain: list[dict[str, Any]]) -> str:
    tokens = sum(len(line["token_ids"]) for line in mine)
    passes, drafted = (sum(line[key] for line in mine) for key in ("rounds", "drafted"))
    accepted = sum(line["accepted"] for line in mine)
    share = f"{accepted / drafted:.2f}" if drafted else "-"
    whole = sum(line["seconds"] for line in plain) / sum(line["seconds"] for line in mine)
    after = decoding(plain) / decoding(mine)
    return f"| {kind} | {name} | {tokens / passes:.2f} | {share} | {whole:.2f} | {after:.2f} |"


def decoding(lines: list[dict[str, Any]]) -> float:
    return sum(line["seconds"] - line["first_token_seconds"] for line in lines)


if __name__ == "__main__":
    main()
