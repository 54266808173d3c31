"""What speculative decoding brings, and what it leaves alone, on the default model in about two
minutes on two cores.

    .venv/bin/python examples/demo.py

1. In the dtype this machine runs best, greedy: an edit, where the answer repeats the prompt, and a
   question, where it does not. Drafts come from suffix matches and from the head that comes with
   the package.
2. In fp32: 32 tokens of plain and of speculative decoding, token by token.
"""

from __future__ import annotations

import statistics
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.bench.compare import Comparison, compare_with_plain
from draftproof.bench.hf_arms import HFArm
from draftproof.cli.options import usual_method
from draftproof.decode.prompts import prompt_ids
from draftproof.models.pull import DEFAULT_MODEL, pull

EDIT = (Path(__file__).parent / "demo_prompt.txt").read_text()
QUESTION = "What is the capital of France and what is it known for?"
CONFIG = usual_method(None) | (
    {} if usual_method(None)["method"] == "auto" else {"num_speculative_tokens": 6}
)
DRAFTS = " and ".join(CONFIG.get("drafters", [CONFIG["method"]]))
RULE = "-" * 78


def load(dtype: str) -> SpeculativeDecoder:
    """The default model, fetched if it is not here yet."""
    pull()
    return SpeculativeDecoder.from_pretrained(DEFAULT_MODEL, speculative_config=CONFIG, dtype=dtype)


def speed(decoder: SpeculativeDecoder, name: str, prompt: str, max_tokens: int = 64) -> None:
    """Plain and speculative decoding and transformers' `generate` on one prompt, two runs of each
    in turns; the text and the figures."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    messages = [{"role": "user", "content": prompt}]
    ids = prompt_ids(messages, decoder.tokenizer, decoder.target.vocab_size)
    library, theirs = HFArm("plain", decoder.target), []

    def begin(arm: str) -> None:
        print(".", end="", file=sys.stderr)
        if arm == "warm-up, plain":
            library.run(ids, replace(params, max_tokens=2))
        elif arm == "plain":
            theirs.append(library.run(ids, params).tokens_per_second)

    found = compare_with_plain(decoder, messages, params, 2, begin)
    print(f"\n{RULE}\n{name}\n{RULE}")
    for line in found.speculative[0].text.strip().splitlines():
        print(textwrap.fill(line, 78) if len(line) > 78 else line)
    for arm, runs in (("plain", found.plain), ("speculative", found.speculative)):
        rate = statistics.median(run.tokens_per_second for run in runs)
        print(f"\n{arm:12} {len(runs[0].token_ids):3d} new tokens, {rate:5.1f} tokens/s", end="")
    stats = found.speculative[0].stats
    ours = [run.tokens_per_second for run in found.speculative]
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    print(f" = {found.speedup:.2f} times the plain speed,")
    print(f"{ratio:17.2f} times transformers' generate ({statistics.median(theirs):.1f} tokens/s)")
    print(
        f"{stats.tokens_per_round:17.2f} tokens a pass, {stats.num_accepted_tokens} of "
        f"{stats.num_draft_tokens} drafts accepted"
    )
    if found.speedup < 1:
        print("             slower: too few drafts are accepted to pay for reading them all")
    print(agreement(decoder, found))


def agreement(decoder: SpeculativeDecoder, found: Comparison) -> str:
    """Whether the texts are the same, else where they part and how close the target's two best
    tokens are there."""
    part = found.first_difference
    if part is None:
        return "             both texts are the same, token for token"
    tokens = [
        None if token is None else decoder.tokenizer.decode([token])
        for token in (part.plain_token, part.speculative_token)
    ]
    return (
        f"             the texts part at token {part.position}: {tokens[0]!r} and "
        f"{tokens[1]!r}; the target's two\n"
        f"             best tokens there are {part.top2_gap:.4f} apart in "
        "log-probability: passes of\n"
        "             one token and of several round differently"
    )


def identity(decoder: SpeculativeDecoder, prompt: str, count: int = 32) -> bool:
    """Compare plain and speculative decoding token by token; True when all are equal."""
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    messages = [{"role": "user", "content": prompt}]
    plain = decoder.plain.generate(messages, params)
    speculative = decoder.generate(messages, params)
    equal = [a == b for a, b in zip(plain.token_ids, speculative.token_ids, strict=True)]
    print("plain       ", *plain.token_ids[:10], "...")
    print("speculative ", *speculative.token_ids[:10], "...")
    print(
        f"{sum(equal)} of {count} tokens are equal; "
        f"{speculative.stats.num_accepted_tokens} of them were drafts\n"
    )
    return all(equal)


def main() -> int:
    """Run the demonstration; 1 when a token differs in fp32."""
    decoder = load("auto")
    dtype = str(decoder.target.dtype).removeprefix("torch.")  # type: ignore[attr-defined]
    print(f"\n{DEFAULT_MODEL} in {dtype} by {decoder.target.engine}, greedy, drafts by {DRAFTS}\n")
    speed(decoder, "An edit: most of the answer stands in the prompt", EDIT)
    speed(decoder, "A question: there is little to look up", QUESTION)
    print(f"{RULE}\nThe same model in fp32, token by token\n{RULE}")
    if dtype != "float32":
        decoder = load("float32")
    return 0 if all([identity(decoder, EDIT), identity(decoder, QUESTION)]) else 1


if __name__ == "__main__":
    sys.exit(main())
