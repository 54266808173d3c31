"""Draft lengths that adapt against fixed ones on a real model with prompt lookup: plain, fixed and
adaptive runs interleaved.

    python adaptive_lengths.py --target smollm2-135m-instruct --out lengths.jsonl

Greedy and sampled; a text to be copied with a change, a question, and random tokens. The last arm
drafts sixteen tokens that are always wrong: what it loses is what auto-off lets through. The output
has a line a run: prompt, temperature, arm, seconds, tokens, rounds, drafted, accepted.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Drafter, DraftSession, Request

CODE = """\
Repeat this program with the variable `total` renamed to `amount`, and nothing else changed.

def summarise(rows):
    total = 0
    for row in rows:
        if row["kind"] == "sale":
            total += row["price"] * row["count"]
        elif row["kind"] == "refund":
            total -= row["price"] * row["count"]
    return {"total": total, "rows": len(rows)}
"""
CHAT = (
    "Explain to a friend why the sky is blue in the day and red in the evening, in a few "
    "paragraphs."
)
ARMS: dict[str, dict[str, Any]] = {
    "fixed 2": {"num_speculative_tokens": 2},
    "fixed 4": {"num_speculative_tokens": 4},
    "fixed 10": {"num_speculative_tokens": 10},
    "survival": {"adaptive": "survival"},
}
WRONG = "always wrong, survival"


class AlwaysWrong(Drafter, DraftSession):
    """A drafter that guesses one and the same rare token, as long as it is let."""

    name, selections, memories = "always_wrong", frozenset({"fixed"}), ()

    def open(self, request: Request) -> AlwaysWrong:
        return self

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        while draft.room > 0:
            draft.guess(5)

    def state_key(self) -> tuple[()]:
        return ()

    def fork(self) -> AlwaysWrong:
        return self


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--draft", help="a draft model; without it, prompt lookup")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--temperature", type=float, action="append")
    parser.add_argument(
        "--arm",
        action="append",
        choices=[*ARMS, WRONG],
        help="only these, beside plain; repeatable",
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    run(options)


def run(options: argparse.Namespace) -> None:
    """One line a run, each as it ends."""
    from draftproof import SamplingParams, SpeculativeDecoder
    from draftproof.models.load import load_model

    target = load_model(options.target)
    draft = load_model(options.draft) if options.draft else None
    base = (
        {"method": "ngram"} if draft is None else {"method": "draft_model", "model": options.draft}
    )
    decoders = {
        name: SpeculativeDecoder(draft, target, target.tokenizer, speculative_config=base | arm)
        for name, arm in ARMS.items()
    }
    decoders[WRONG] = SpeculativeDecoder(
        AlwaysWrong(), target, target.tokenizer, speculative_config={"adaptive": "survival"}
    )
    noise = [random.Random(0).randrange(1000, target.vocab_size - 1000) for _ in range(100)]
    prompts: dict[str, Any] = {
        "code": [{"role": "user", "content": CODE}],
        "chat": [{"role": "user", "content": CHAT}],
        "random": noise,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a") as file:
        print(json.dumps({"costs": decoders["survival"].config.costs}), file=file, flush=True)
        for repeat in range(options.repeat):
            for temperature in options.temperature or (0.0, 0.7):
                for prompt, content in prompts.items():
                    params = SamplingParams(
                        temperature=temperature,
                        max_tokens=options.tokens,
                        ignore_eos=True,
                        seed=repeat,
                    )
                    wanted = {name: decoders[name] for name in options.arm or decoders}
                    arms = list({"plain": decoders["survival"].plain, **wanted}.items())
                    for arm, decoder in arms if repeat % 2 == 0 else reversed(arms):
                        result = decoder.generate(content, params)
                        stats = result.stats
                        line = {
                            "prompt": prompt,
                            "temperature": temperature,
                            "arm": arm,
                            "seconds": result.seconds,
                            "tokens": len(result.token_ids),
                            "rounds": stats.num_rounds,
                            "drafted": stats.num_draft_tokens,
                            "accepted": stats.num_accepted_tokens,
                            "reasons": dict(stats.length_reasons),
                        }
                        print(json.dumps(line), file=file, flush=True)


if __name__ == "__main__":
    main()
