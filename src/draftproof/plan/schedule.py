"""Which draft length pays at which batch size: a schedule from measured costs and acceptance, in vLLM's form.

With B sequences side by side a round costs one target pass over B * (k + 1) tokens and k draft steps over B; it emits B times
the tokens of one. As B grows the pass stops being nearly free, and the best k falls until it is 0: plain decoding in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from draftproof.core.formulas import expected_tokens
from draftproof.errors import UsageError

PassSeconds = Callable[[int, int], float]
"""(sequences, tokens of each) -> seconds of one pass over them."""


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
    least_gain: float = 0.02,
) -> list[list[int]]:
    """`num_speculative_tokens_per_batch_size`: [[first, last, k], ...], the best draft length for each range of batch sizes.

    tokens_per_round: entry k is what a round with a draft of k emits on average, entry 0 being 1. batch_sizes: where costs are
    known, ascending from 1; sizes between two of them take the length of the larger, which is the more careful one. least_gain:
    what a longer draft must bring over a shorter one, as a share. UsageError for other input."""
    if not tokens_per_round or abs(tokens_per_round[0] - 1) > 1e-9:
        raise UsageError("tokens_per_round begins with 1, the tokens of a round without a draft")
    if not batch_sizes or batch_sizes[0] != 1 or any(b <= a for a, b in zip(batch_sizes, batch_sizes[1:], strict=False)):
        raise UsageError(f"batch_sizes is {list(batch_sizes)}; it ascends from 1")
    entries: list[list[int]] = []
    first = 1
    for size in batch_sizes:
        best = _best(batch_speedups(tokens_per_round, size, target_pass, draft_step), least_gain)
        if entries and entries[-1][2] == best:
            entries[-1][1] = size
        else:
            entries.append([first, size, best])
        first = size + 1
    return entries


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


def _best(speedups: Sequence[float], least_gain: float) -> int:
    best = 0
    for k, speedup in enumerate(speedups):
        if speedup > speedups[best] * (1 + least_gain):
            best = k
    return best
