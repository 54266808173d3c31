"""Predicted Outputs on real edits: passes a token where the answer is a file after a commit, the
prediction the one before it.

    python benchmarks/predicted_edits.py --tokenizer MODEL --at COMMIT [--repository FOLDER]
        [--files 40]

No model and no timing: the target is a table that says the new file token by token, the prompt is
the old file, and everything else is the decoder's own code, greedy, with drafts of up to 16 tokens.
Files of the package of 1,000 to 9,000 characters, from the newest commit back. The passes hold for
any target that makes the edit; a real one makes others.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from draftproof import SamplingParams, SpeculativeDecoder, TableModel

METHODS: dict[str, dict[str, Any]] = {
    "prediction": {"method": "prediction"},
    "ngram, up to 3 tokens": {"method": "ngram", "num_speculative_tokens": 16},
    "ngram, up to 8 tokens": {
        "method": "ngram",
        "prompt_lookup_max": 8,
        "prompt_lookup_min": 1,
        "num_speculative_tokens": 16,
    },
    "suffix": {"method": "suffix", "num_speculative_tokens": 16},
    "auto: prediction, suffix": {
        "method": "auto",
        "drafters": ["prediction", "suffix"],
        "costs": {
            name: {"verify": {"1": 1.0, "17": 1.4}, "draft": 0.0}
            for name in ("prediction", "suffix")
        },
    },
}
"""`auto` weighs drafts by what passes cost; here as on the processor of benchmarks/record.md."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--tokenizer", required=True, help="folder or hub id")
    arguments.add_argument("--repository", default=Path(__file__).parent.parent, type=Path)
    arguments.add_argument("--at", default="HEAD", help="the newest commit that is looked at")
    arguments.add_argument("--files", default=40, type=int)
    args = arguments.parse_args()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    passes: dict[str, list[float]] = {name: [] for name in METHODS}
    for number, (path, before, after) in enumerate(edits(args.repository, args.at)):
        if number == args.files:
            break
        old, new = tokenizer.encode(before), tokenizer.encode(after)
        for name, config in METHODS.items():
            passes[name].append(num_passes(old, new, config) / len(new))
        print(
            f"{path}: {len(new)} tokens",
            *(f"{1 / found[-1]:.2f}" for found in passes.values()),
            sep="  ",
            flush=True,
        )
    for name, found in passes.items():
        print(f"{name}: {np.mean(found):.4f} passes a token over {len(found)} files")


def edits(repository: Path, newest: str) -> Iterator[tuple[str, str, str]]:
    """Path, text before and text after of each file of the package that a commit changed, from the
    newest commit back."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(repository), *words], capture_output=True, text=True, check=True
        ).stdout

    for commit in git("log", "--format=%h", newest).split():
        changed = git("show", "--name-status", "--format=", commit).splitlines()
        for path in (line.split("\t")[1] for line in changed if line.startswith("M")):
            if path.startswith("src") and path.endswith(".py"):
                before, after = git("show", f"{commit}~1:{path}"), git("show", f"{commit}:{path}")
                if 1000 < len(before) < 9000:
                    yield path, before, after


def num_passes(old: list[int], new: list[int], config: dict[str, Any]) -> int:
    """Passes of the target until all of `new` is said, after the prompt `old`, by the drafter of
    `config`."""
    place = {token: number for number, token in enumerate(dict.fromkeys([*old, *new]))}
    prompt, answer = [place[token] for token in old], [place[token] for token in new]
    rows = np.eye(len(place))
    target = TableModel(
        lambda prefix: rows[answer[len(prefix) - len(prompt)]],
        vocab_size=len(place),
        name="the new file",
    )
    params = SamplingParams(
        temperature=0,
        max_tokens=len(answer),
        prediction=prompt if "prediction" in str(config) else None,
    )
    result = SpeculativeDecoder(None, target, speculative_config=config).generate(prompt, params)
    assert list(result.token_ids) == answer
    return result.stats.num_rounds


if __name__ == "__main__":
    main()
