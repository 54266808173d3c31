"""Which draft length pays at which batch size: a schedule from measured costs and acceptance, in vLLM's form.

With B sequences side by side a round costs one target pass over B * (k + 1) tokens and k draft steps over B; it emits B times
the tokens of one. As B grows the pass stops being nearly free, and the best k falls until it is 0: plain decoding in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from draftproof.core.formulas import expected_tokens
from draftproof.errors import UsageError

PassSeconds = Callable[[int, int], float]
"""(sequences, tokens of each) -> seconds of one pass over them."""
LEAST_GAIN = 0.02
"""What a longer draft must bring over a shorter one, as a share."""
MOST_SEQUENCES = 1024


def parse_batch_sizes(text: str) -> tuple[int, ...]:
    """`8` or `1,2,4,8`. UsageError: not whole numbers from 1 that ascend."""
    try:
        sizes = tuple(int(word) for word in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or sizes[0] < 1 or sizes[-1] > MOST_SEQUENCES or any(b <= a for a, b in zip(sizes, sizes[1:], strict=False)):
        raise UsageError(f"--batch is {text!r}; allowed: a number of sequences, or several that ascend, as 1,2,4,8")
    return sizes


def batch_speedups(
    tokens_per_round: Sequence[float],
    batch_size: int,
    target_pass: PassSeconds,
    draft_step: Callable[[int], float] | None = None,
) -> list[float]:
    """The speedup over plain decoding at this batch size of every draft length k = 0, 1, …: entry k of `tokens_per_round`.

    target_pass, draft_step: seconds of a target pass, and of one draft step over `batch_size` sequences (None: free)."""
    if batch_size < 1:
        raise UsageError(f"batch_size is {batch_size}; allowed: a whole number from 1")
    plain = target_pass(batch_size, 1) / tokens_per_round[0]
    step = 0.0 if draft_step is None else draft_step(batch_size)
    return [plain * tokens / (target_pass(batch_size, k + 1) + k * step) for k, tokens in enumerate(tokens_per_round)]


def batch_schedule(
    tokens_per_round: Sequence[float],
    target_pass: PassSeconds,
    draft_step: Callable[[int], float] | None = None,
    *,
    batch_sizes: Sequence[int] = (1, 2, 4, 8, 16),
    least_gain: float = LEAST_GAIN,
) -> list[list[int]]:
    """`num_speculative_tokens_per_batch_size`: [[first, last, k], ...], the best draft length for each range of batch sizes.

    tokens_per_round: entry k is what a round with a draft of k emits on average, entry 0 being 1. batch_sizes: where costs are
    known, ascending from 1; see `entries`. least_gain: what a longer draft must bring over a shorter one, as a share.
    UsageError for other input."""
    if not tokens_per_round or abs(tokens_per_round[0] - 1) > 1e-9:
        raise UsageError("tokens_per_round begins with 1, the tokens of a round without a draft")
    if not batch_sizes or batch_sizes[0] != 1 or any(b <= a for a, b in zip(batch_sizes, batch_sizes[1:], strict=False)):
        raise UsageError(f"batch_sizes is {list(batch_sizes)}; it ascends from 1")
    speeds = {size: batch_speedups(tokens_per_round, size, target_pass, draft_step) for size in batch_sizes}
    return entries({size: best_length(dict(enumerate(found)), least_gain) for size, found in speeds.items()})


def entries(lengths: Mapping[int, int]) -> list[list[int]]:
    """[[first, last, k], ...] from the draft length at each known batch size, ascending: sizes between two of them take the
    length of the larger, which is the more careful one, and so do those below the smallest."""
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
    """The length with the highest speedup, a longer one only where it gains `least_gain` over the shorter ones; 0 is plain."""
    best, top = 0, 1.0
    for length, speedup in sorted(speedups.items()):
        if speedup > top * (1 + least_gain):
            best, top = length, speedup
    return best


def by_batch(choices: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Which length each drafter should have at each batch size, and the schedule of the one that brings most over all sizes.

    choices: batch size -> choices as in a plan's document. A length is taken only where its interval stays above 1. Trees are
    left out, because a schedule has lengths only."""
    chains = {size: [c for c in found if c.get("tree") is None] for size, found in choices.items()}
    names = list(dict.fromkeys(c["drafter"] for found in chains.values() for c in found))
    rows = [_row(size, name, [c for c in found if c["drafter"] == name]) for name in names for size, found in chains.items()]
    mine = {name: [row for row in rows if row["drafter"] == name] for name in names}
    best = max(names, key=lambda name: sum(np.log(r["speedup"]["point"]) for r in mine[name] if r["num_speculative_tokens"]))
    chosen = entries({row["batch"]: row["num_speculative_tokens"] for row in mine[best]})
    return {"drafter": best, "num_speculative_tokens_per_batch_size": chosen, "rows": rows}


def _row(size: int, drafter: str, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One drafter at one batch size; without a length that pays, k is 0 and the figures are those of the fastest one."""
    paying = {c["num_speculative_tokens"]: c["speedup"]["point"] for c in found if c["speedup"]["low"] >= 1}
    length = best_length(paying)
    fastest = max(found, key=lambda c: c["speedup"]["point"])
    shown = next((c for c in found if c["num_speculative_tokens"] == length), fastest)
    kept = {name: shown[name] for name in ("tokens_per_round", "speedup")}
    return {"batch": size, "drafter": drafter, "num_speculative_tokens": length, **kept}


def tokens_by_length(overlaps: Sequence[float], longest: int) -> list[float]:
    """Tokens a round for draft lengths 0 to `longest`, from the overlap at each position (the last one goes on). One overlap
    is the formula (1 - a^(k+1)) / (1 - a)."""
    if len(overlaps) == 1:
        return [expected_tokens(overlaps[0], k) for k in range(longest + 1)]
    found, reached = [1.0], 1.0
    for k in range(longest):
        reached *= overlaps[min(k, len(overlaps) - 1)]
        found.append(found[-1] + reached)
    return found
