"""What makes a measurement doubtful, told beside it: load that moved, a drafter that seems to
remember, texts and lengths that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

LOAD_TOLERANCE = 1.25
"""A calibration that takes this many times its median says that the machine was busy."""
MEMORY_TOLERANCE = 1.10
"""A repeated prompt that is this many times faster than the first time, beyond what plain decoding
shows."""


@dataclass(frozen=True)
class Flag:
    """kind: for scripts. message: one sentence. arm: which one, None for the whole run."""

    kind: str
    message: str
    arm: str | None = None


def calibration_pass() -> float:
    """Seconds a fixed small piece of work takes: some integer arithmetic, about five milliseconds
    on a quiet machine."""
    began = perf_counter()
    total = 0
    for i in range(60_000):
        total = (total * 31 + i) & 0xFFFFFFFF
    return perf_counter() - began


def load_flags(calibrations: Sequence[float]) -> list[Flag]:
    """One flag when more than a tenth of the calibration passes were slow."""
    if len(calibrations) < 3:
        return []
    usual = median(calibrations)
    slow = sum(1 for seconds in calibrations if seconds > LOAD_TOLERANCE * usual)
    if slow <= len(calibrations) / 10:
        return []
    worst = max(calibrations) / usual
    return [
        Flag(
            "load moved",
            f"the machine's load moved: {slow} of {len(calibrations)} calibration passes "
            f"took more than {LOAD_TOLERANCE} times "
            f"the median, the worst {worst:.1f} times; trust ratios, not rates",
        )
    ]


def memory_flag(
    arm: str, repeated: Mapping[int, Sequence[float]], plain: Mapping[int, Sequence[float]]
) -> Flag | None:
    """A flag when repeats of a prompt are faster than its first run, for a drafter that has no
    memory between requests.

    repeated, plain: prompt -> time per token of its runs in order, of the arm and of plain
    decoding."""
    gain, usual = _first_over_later(repeated), _first_over_later(plain) or 1.0
    if gain is None or gain <= MEMORY_TOLERANCE * max(usual, 1.0):
        return None
    return Flag(
        "repeats faster",
        f"{arm}: a repeated prompt ran {gain:.2f} times as fast as the first time (plain "
        f"decoding {usual:.2f}), although "
        "nothing should be remembered between requests",
        arm,
    )


def _first_over_later(times: Mapping[int, Sequence[float]]) -> float | None:
    """Median over prompts of first time / median later time; None without repeats."""
    gains = [
        runs[0] / median(runs[1:]) for runs in times.values() if len(runs) > 1 and min(runs) > 0
    ]
    return median(gains) if gains else None


def length_flags(lengths: Mapping[str, Mapping[int, int]]) -> list[Flag]:
    """One flag when arms emitted different numbers of tokens for one prompt; arm -> prompt ->
    tokens."""
    prompts = sorted({prompt for counts in lengths.values() for prompt in counts})
    unequal = [
        p for p in prompts if len({counts[p] for counts in lengths.values() if p in counts}) > 1
    ]
    if not unequal:
        return []
    first = unequal[0]
    counts = ", ".join(f"{arm} {by[first]}" for arm, by in lengths.items() if first in by)
    message = (
        f"token counts differ on {len(unequal)} of {len(prompts)} prompts (prompt {first}: "
        f"{counts}); rates are per token"
    )
    return [Flag("unequal lengths", message)]
