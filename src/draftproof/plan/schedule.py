"""Which draft length pays at which batch size: a schedule from measured costs and acceptance, in
vLLM's form.

With B sequences side by side a round costs one target pass over B * (k + 1) tokens and k draft
steps over B; it emits B times the tokens of one. As B grows the pass stops being nearly free, and
the best k falls until it is 0: plain decoding in a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from draftproof.errors import UsageError

LEAST_GAIN = 0.02
"""What a longer draft must bring over a shorter one, as a share."""
MOST_SEQUENCES = 1024


def parse_batch_sizes(text: str) -> tuple[int, ...]:
    """`8` or `1,2,4,8`. UsageError: not whole numbers from 1 that ascend."""
    try:
        sizes = tuple(int(word) for word in text.split(","))
    except ValueError:
        sizes = ()
    if (
        not sizes
        or sizes[0] < 1
        or sizes[-1] > MOST_SEQUENCES
        or any(b <= a for a, b in zip(sizes, sizes[1:], strict=False))
    ):
        raise UsageError(
            f"--batch is {text!r}; allowed: a number of sequences, or several that "
            "ascend, as 1,2,4,8"
        )
    return sizes


def entries(lengths: Mapping[int, int]) -> list[list[int]]:
    """[[first, last, k], ...] from the draft length at each known batch size, ascending: sizes
    between two of them take the length of the larger, which is the more careful one, and so do
    those below the smallest."""
    found: list[list[int]] = []
    first = 1
    for size, length in lengths.items():
        if found and found[-1][2] == length:
            found[-1][1] = size
        else:
            found.append([first, size, length])
        first = size + 1
    return found


def best_length(speedups: Mapping[int, float], least_gain: float = LEAST_GAIN) -> int:
    """The length with the highest speedup, a longer one only where it gains `least_gain` over the
    shorter ones; 0 is plain."""
    best, top = 0, 1.0
    for length, speedup in sorted(speedups.items()):
        if speedup > top * (1 + least_gain):
            best, top = length, speedup
    return best


def by_batch(choices: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Which length each drafter should have at each batch size, and the schedule of the one that
    brings most over all sizes.

    choices: batch size -> choices as in a plan's document. A length is taken only where its
    interval stays above 1. Trees are left out, because a schedule has lengths only."""
    chains = {size: [c for c in found if c.get("tree") is None] for size, found in choices.items()}
    names = list(dict.fromkeys(c["drafter"] for found in chains.values() for c in found))
    rows = [
        _row(size, name, [c for c in found if c["drafter"] == name])
        for name in names
        for size, found in chains.items()
    ]
    mine = {name: [row for row in rows if row["drafter"] == name] for name in names}
    best = max(
        names,
        key=lambda name: sum(
            np.log(r["speedup"]["point"]) for r in mine[name] if r["num_speculative_tokens"]
        ),
    )
    chosen = entries({row["batch"]: row["num_speculative_tokens"] for row in mine[best]})
    return {"drafter": best, "num_speculative_tokens_per_batch_size": chosen, "rows": rows}


def _row(size: int, drafter: str, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One drafter at one batch size; without a length that pays, k is 0 and the figures are those
    of the fastest one."""
    paying = {
        c["num_speculative_tokens"]: c["speedup"]["point"]
        for c in found
        if c["speedup"]["low"] >= 1
    }
    length = best_length(paying)
    fastest = max(found, key=lambda c: c["speedup"]["point"])
    shown = next((c for c in found if c["num_speculative_tokens"] == length), fastest)
    kept = {name: shown[name] for name in ("tokens_per_round", "speedup")}
    return {"batch": size, "drafter": drafter, "num_speculative_tokens": length, **kept}
