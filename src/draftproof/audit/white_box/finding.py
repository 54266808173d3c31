"""What one test found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """test: its name. statistic, p_value, e_value: what it found, under an exact engine; one of the last two may be None.
    effect, interval: how large the deviation is, with its 95% interval. n: how many events it rests on."""

    test: str
    statistic: float
    p_value: float | None
    e_value: float | None
    effect: float
    interval: tuple[float, float]
    n: int
