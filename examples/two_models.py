"""Two models and one text: a round of speculative decoding taken apart, for any pair of models that
share a tokenizer.

    python examples/two_models.py
        gpt2 drafts for gpt2-medium, or what this machine has
    python examples/two_models.py --draft D --target T --prompt P
        any pair: hub ids, folders or GGUF files
    python examples/two_models.py --target T
        no draft model: drafts are looked up in the text
    python examples/two_models.py --sweep
        no model at all: speed over acceptance, simulated

The round itself is `draftproof.walkthrough`: its three steps can be called one by one, printed,
changed and broken."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

import draftproof
from draftproof.errors import UsageError
from draftproof.models.load import load_model
from draftproof.simulate.sweep import sweep
from draftproof.walkthrough import (
    SpeculativeDecoder,
    default_pair,
    speculative_generate,
    standard_generate,
    whole_text,
)

WARM_UP_TOKENS = 3
PROMPT = "One potato, two potatoes, three potatoes, four.\nOne tomato, two tomatoes,"


def print_sweep() -> None:
    """Speed over acceptance with 5 drafts, draft steps of 5 ms and target passes of 100 ms:
    simulated, and expected exactly."""
    print("acceptance   tokens per round      speedup           exact")
    for row in sweep():
        print(
            f"{row['rate']:10.1f}   {row['tokens_mean']:6.2f} +- {row['tokens_std']:4.2f}   "
            f"{row['speedup_mean']:6.2f} +- {row['speedup_std']:4.2f}   "
            f"{row['speedup_expected']:6.2f}"
        )


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="speculative decoding of a pair of models, round by round"
    )
    parser.add_argument("--draft", help="draft model: hub id, folder or GGUF file")
    parser.add_argument(
        "--target",
        help="target: hub id, folder or GGUF file; alone, drafts are looked up in the text",
    )
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--max-tokens", type=int, default=50)
    parser.add_argument("--num-draft", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument(
        "--device", default="auto", help="auto: the GPU if there is one, else the CPU"
    )
    parser.add_argument("--sweep", action="store_true", help="simulate instead of running models")
    given = parser.parse_args(argv)
    if given.draft and not given.target:
        parser.error("--draft needs --target: the model that is to be sped up")
    return given


def compare(given: argparse.Namespace) -> None:
    """Load what was asked for, generate plainly and speculatively, and print both with their
    time."""
    draft_name, target_name = (given.draft, given.target) if given.target else default_pair()
    place = {"dtype": given.dtype, "device": given.device}
    how = {"temperature": given.temperature, "seed": given.seed}
    target = load_model(target_name, **place)
    print(
        f"target {target_name}, "
        f"{f'draft model {draft_name}' if draft_name else 'drafts by prompt lookup'}"
    )
    plain = timed(
        partial(standard_generate, target, target.tokenizer, given.prompt, **how), given.max_tokens
    )
    if draft_name:
        decoder = SpeculativeDecoder(
            load_model(draft_name, **place), target, target.tokenizer, seed=given.seed
        )
        options = {"num_draft": given.num_draft, "temperature": given.temperature}
        fast = timed(
            partial(speculative_generate, decoder, given.prompt, **options), given.max_tokens
        )
    else:
        config = {"method": "ngram", "num_speculative_tokens": given.num_draft}
        lookup = draftproof.SpeculativeDecoder(
            None, target, target.tokenizer, speculative_config=config
        )
        fast = timed(partial(whole_text, lookup, given.prompt, **how), given.max_tokens)
    text, stats = fast[0]
    print(f"\n--- plain, {plain[1]:.2f} s\n{plain[0]}\n\n--- speculative, {fast[1]:.2f} s\n{text}")
    print(f"\n{stats}: {stats['accepted'] / max(1, stats['drafted']):.0%} of the drafts accepted")


def timed(generate: Any, max_tokens: int) -> tuple[Any, float]:
    """What `generate(max_tokens)` returns and its seconds, after a few tokens unmeasured: first
    passes are slow."""
    generate(min(max_tokens, WARM_UP_TOKENS))
    begin = perf_counter()
    return generate(max_tokens), perf_counter() - begin


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 2 for a value that cannot be used, said in one sentence."""
    given = arguments(argv)
    try:
        print_sweep() if given.sweep else compare(given)
    except UsageError as error:
        print(f"two_models: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
