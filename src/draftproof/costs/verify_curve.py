"""What a target pass over several tokens costs, as a function: measured points joined by straight
lines.

Verification is not free and not linear (overhead, then memory, then compute), so planning reads it
from a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.errors import UsageError


@dataclass(frozen=True)
class VerifyCurve:
    """tokens: pass lengths in rising order, the first 1. ratios: T(n) / T(1) at each, the first
    1."""

    tokens: tuple[int, ...]
    ratios: tuple[float, ...]

    def __post_init__(self) -> None:
        if (
            len(self.tokens) != len(self.ratios)
            or not self.tokens
            or self.tokens[0] != 1
            or self.ratios[0] != 1
        ):
            raise UsageError(
                "a verify curve starts with ratio 1 at 1 token and has one ratio for "
                "every pass length"
            )
        if any(b <= a for a, b in zip(self.tokens, self.tokens[1:], strict=False)):
            raise UsageError(f"the pass lengths of a verify curve must rise, got {self.tokens}")
        if not all(np.isfinite(r) and r > 0 for r in self.ratios):
            raise UsageError(f"the ratios of a verify curve must be positive, got {self.ratios}")

    @classmethod
    def from_times(cls, times: Mapping[int, float]) -> VerifyCurve:
        """times: tokens in a pass -> its time, in any unit; 1 must be among them."""
        if 1 not in times:
            raise UsageError(
                f"a verify curve needs the time of a pass over 1 token; got lengths {sorted(times)}"
            )
        tokens = tuple(sorted(times))
        return cls(tokens, tuple(times[n] / times[1] for n in tokens))

    def __call__(self, num_tokens: ArrayLike) -> NDArray[np.float64]:
        """T(n) / T(1) for every n in `num_tokens`; outside the measured range it refuses to
        guess."""
        asked = np.asarray(num_tokens)
        if asked.size and (asked.min() < 1 or asked.max() > self.tokens[-1]):
            raise UsageError(
                f"the verify curve covers passes over 1 to {self.tokens[-1]} tokens, "
                f"asked for {asked.max()}"
            )
        return np.asarray(np.interp(asked, self.tokens, self.ratios), dtype=np.float64)

    def beyond(self, tokens: int) -> float:
        """T(tokens) / T(1), beyond the measured range along the last line's rise."""
        if tokens <= self.tokens[-1] or len(self.tokens) == 1:
            return float(np.interp(tokens, self.tokens, self.ratios))
        slope = (self.ratios[-1] - self.ratios[-2]) / (self.tokens[-1] - self.tokens[-2])
        return self.ratios[-1] + max(slope, 0.0) * (tokens - self.tokens[-1])

    @property
    def points(self) -> tuple[tuple[int, float], ...]:
        """(tokens, ratio) of every measured length."""
        return tuple(zip(self.tokens, self.ratios, strict=True))


def rising(times: Sequence[float]) -> list[float]:
    """The nearest values that never fall, since a longer pass is never quicker: neighbours that do
    are averaged. (A running maximum would make one slow pass the price of all longer ones.)"""
    blocks: list[tuple[float, int]] = []
    for time in times:
        blocks.append((time, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (one, n), (other, m) = blocks[-2:]
            blocks[-2:] = [((one * n + other * m) / (n + m), n + m)]
    return [value for value, count in blocks for _ in range(count)]


def parse_curve(text: str, name: str = "a verify curve") -> VerifyCurve:
    """`1:10,4:11` (tokens in a pass:its time, in any unit) -> a curve. UsageError says what `name`
    should look like."""
    try:
        times = {
            int(tokens): float(time)
            for tokens, time in (point.split(":") for point in text.split(","))
        }
    except ValueError:
        raise UsageError(f"{name} is tokens:time pairs as 1:1,4:1.1,8:1.6, got {text!r}") from None
    return VerifyCurve.from_times(times)
