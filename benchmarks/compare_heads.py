"""Held-out acceptance of several heads of one target on the very same texts, with the difference
from the first paired by text.

    python benchmarks/compare_heads.py HEAD HEAD ... [--data benchmarks/data/smollm2_self_written]
        [--target NAME]

The texts are those that `draftproof train` holds out of --data, so heads trained on it have not
seen them. Nothing is sampled."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data" / "smollm2_self_written"
POSITIONS = 3
SHORTEST = 8
"""Answers of fewer tokens are left out: too little of them can be drafted at three positions."""


def readings(target: Any, heads: Sequence[Any], texts: Sequence[Any]) -> tuple[Any, Any]:
    """(rows [texts], chance of acceptance up to each position [texts, heads, POSITIONS]); heads
    share layers and vocabulary."""
    from draftproof.train.heldout import held_out
    from draftproof.train.states import show_states

    rows, chances = [], []
    for text in texts:
        states = show_states(
            target, [text], heads[0].hidden_layers, heads[0].draft_ids, temperature=None
        )
        found = [held_out(head, [states], POSITIONS) for head in heads]
        rows.append(found[0].rows[0])
        chances.append([one.marginal for one in found])
    return np.asarray(rows, float), np.asarray(chances)


def table(names: Sequence[str], rows: Any, chances: Any) -> list[str]:
    """Lines of Markdown: means over all rows, and the difference of tokens a round with its
    standard error over texts."""
    weights = rows / rows.sum()
    lengths = 1 + chances.sum(2)
    said = ["| head | 1 | 2 | 3 | tokens a round | from the first |", "|---|---|---|---|---|---|"]
    for place, name in enumerate(names):
        means = " | ".join(f"{mean:.3f}" for mean in weights @ chances[:, place])
        apart = lengths[:, place] - lengths[:, 0]
        mean = float(weights @ apart)
        error = float(np.sqrt(weights**2 @ (apart - mean) ** 2))
        said.append(
            f"| {name} | {means} | {weights @ lengths[:, place]:.3f} | {mean:+.3f} ± {error:.3f} |"
        )
    return said


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("heads", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--max-length", type=int, default=700)
    options = parser.parse_args(argv)
    from draftproof.heads.folder import load_head
    from draftproof.heads.target import target_view
    from draftproof.models.load import load_model
    from draftproof.train.loop import split
    from draftproof.train.store import read_texts, shortened

    target = load_model(options.target, dtype="float32")
    heads: list[Any] = [
        load_head(folder, target_view(target), "eagle3").float() for folder in options.heads
    ]
    texts = [
        text
        for text in split(shortened(read_texts(options.data), options.max_length))[1]
        if text.answer >= SHORTEST
    ]
    rows, chances = readings(target, heads, texts)
    chat = np.array(
        [
            text.source in ("chat", "invented") or text.source.startswith("self-instruct")
            for text in texts
        ]
    )
    warm = chat & np.array([text.temperature == 0.7 for text in texts])
    for name, some in (("all", chat | ~chat), ("chat", chat), ("chat at T = 0.7", warm)):
        if some.any():
            lines = table([str(folder) for folder in options.heads], rows[some], chances[some])
            print("\n".join([f"{name}, {some.sum()} texts", "", *lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
