"""What a round costs, in plain tokens: 1 is the time of a target pass over one token.

A table, not the clock: whoever decides from it decides the same again when a run is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from draftproof.costs.verify_curve import VerifyCurve
from draftproof.errors import UsageError

KEY = "costs"


@dataclass(frozen=True)
class RoundCosts:
    """verify: tokens in a target pass -> its time, 1 -> 1. draft: one step of the drafter. read:
    what the drafter takes for each further token that it has not read yet. prompt: what the target
    takes for each further token of a prompt. fixed, each: what a round that drafts takes outside
    forward passes, beyond a plain round, and what it takes for every draft."""

    verify: tuple[tuple[int, float], ...] = ((1, 1.0),)
    draft: float = 0.0
    read: float = 0.0
    prompt: float = 0.0
    fixed: float = 0.0
    each: float = 0.0

    def __post_init__(self) -> None:
        lengths = [n for n, _ in self.verify]
        if (
            not lengths
            or lengths[0] != 1
            or lengths != sorted(set(lengths))
            or self.verify[0][1] != 1
        ):
            raise UsageError(
                f"{KEY}: verify starts with 1 at 1 token and its pass lengths rise; got "
                f"{dict(self.verify)}"
            )
        numbers = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "verify"} | {
            f"verify[{n}]": ratio for n, ratio in self.verify
        }
        for name, value in numbers.items():
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not 0 <= value < float("inf")
            ):
                raise UsageError(
                    f"{KEY}: {name} is {value!r}; allowed: a number from 0, in target "
                    "passes over one token"
                )

    @classmethod
    def from_dict(cls, given: Any) -> RoundCosts:
        """From what `as_dict` gives (JSON turns the pass lengths into strings). UsageError for
        anything else."""
        if isinstance(given, RoundCosts):
            return given
        allowed = [f.name for f in fields(cls)]
        if not isinstance(given, Mapping) or not set(given) <= set(allowed):
            raise UsageError(
                f"{KEY} is {given!r}; it is a mapping with the keys {', '.join(allowed)}"
            )
        verify = given.get("verify", {1: 1.0})
        if not isinstance(verify, Mapping) or not all(str(n).isdecimal() for n in verify):
            raise UsageError(
                f"{KEY}: verify is {verify!r}; it maps tokens in a pass to its time, as "
                f'{{"1": 1, "5": 1.1}}'
            )
        points = tuple(sorted((int(n), ratio) for n, ratio in verify.items()))
        return cls(points, **{name: value for name, value in given.items() if name != "verify"})

    def as_dict(self) -> dict[str, Any]:
        """The mapping that `from_dict` reads back."""
        return {"verify": {str(n): ratio for n, ratio in self.verify}} | {
            f.name: getattr(self, f.name) for f in fields(self) if f.name != "verify"
        }

    @cached_property
    def curve(self) -> VerifyCurve:
        """T(n) / T(1), between the points by straight lines."""
        return VerifyCurve(*zip(*self.verify, strict=True))

    def verify_ratio(self, tokens: int) -> float:
        """T(tokens) / T(1), beyond the last point along the last line's rise."""
        return self.curve.beyond(tokens)

    def step(self, unread: int = 1) -> float:
        """A step of the drafter that reads `unread` tokens."""
        return self.draft + self.read * (unread - 1)

    def more(self, drafts: int) -> float:
        """What one draft after `drafts` adds to verification and to the work outside passes; never
        less than nothing."""
        return max(self.verify_ratio(drafts + 2) - self.verify_ratio(drafts + 1), 0.0) + self.each

    def round(self, drafts: int, steps: float | None = None, unread: int = 1) -> float:
        """A round with `drafts` drafts from `steps` steps of the drafter (by default one a draft),
        the first of which reads `unread` tokens. Without drafts and steps: a plain round."""
        steps = drafts if steps is None else steps
        if not drafts and not steps:
            return 1.0
        passes = self.step(unread) + (steps - 1) * self.draft if steps else 0.0
        return self.verify_ratio(drafts + 1) + passes + self.fixed + drafts * self.each

    def best(self, marginal: Sequence[float]) -> tuple[int, float]:
        """(draft length, speedup over plain decoding) that promise most, given the chance that
        drafts 1 .. i are all accepted; length 0 and 1.0 when no length promises a gain."""
        chosen = (0, 1.0)
        for drafts in range(1, min(len(marginal), self.verify[-1][0] - 1) + 1):
            speedup = (1 + sum(marginal[:drafts])) / self.round(drafts)
            if speedup > chosen[1]:
                chosen = (drafts, speedup)
        return chosen


def checked_costs(given: Any) -> dict[str, Any]:
    """The value of the key: one table for all drafters, or tables by drafter, as `as_dict` writes
    them. UsageError else."""
    if not isinstance(given, Mapping) or not given:
        raise UsageError(
            f"{KEY} is {given!r}; it is a table of costs, or a mapping from drafters to tables"
        )
    if set(given) & {f.name for f in fields(RoundCosts)}:
        return RoundCosts.from_dict(given).as_dict()
    return {str(name): RoundCosts.from_dict(table).as_dict() for name, table in given.items()}
