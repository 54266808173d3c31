"""What an audit found, and the one answer that its findings give together.

Every test of an audit is a finding. They are joined by Bonferroni's inequality: an exact engine is
called not exact with a chance of at most `level`, however its tests depend on each other. An
e-value counts, by Markov's inequality, as a p-value of 1/e.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["exact", "not exact", "cannot tell"]


@dataclass(frozen=True)
class Finding:
    """One test. statistic: its value. p_value, e_value: what an exact engine makes of it, None
    where the test gives no such number. effect: how large the deviation is, in the test's own unit,
    with its 95% interval. n: events it rests on."""

    test: str
    statistic: float
    p_value: float | None
    e_value: float | None
    effect: float
    interval: tuple[float, float]
    n: int

    @property
    def chance(self) -> float:
        """At most this is the probability of so much evidence from an exact engine."""
        by_e = 1.0 if not self.e_value else min(1.0, 1.0 / self.e_value)
        return by_e if self.p_value is None else min(self.p_value, by_e)


@dataclass(frozen=True)
class Verdict:
    """outcome: "exact" within the size stated, "not exact", or "cannot tell". level: the chance, at
    most, that an exact engine is called not exact. detectable: the total variation a token that
    would have been seen with probability 0.95, None where no test has such a size. findings: of
    every test, the strongest evidence first. cause: what the pattern is like. example: a place in a
    text that shows it. more_tokens: how many are missing where it cannot tell."""

    outcome: Outcome
    level: float
    detectable: float | None
    findings: tuple[Finding, ...]
    cause: str | None = None
    example: str | None = None
    more_tokens: int | None = None

    @property
    def significant(self) -> tuple[Finding, ...]:
        """The findings that by themselves refute exactness at the level."""
        return significant(self.findings, self.level)

    @property
    def exit_code(self) -> int:
        """1 for not exact, else 0."""
        return int(self.outcome == "not exact")

    def sentence(self) -> str:
        """The verdict in words."""
        if self.outcome == "not exact":
            strongest = self.findings[0] if self.findings else None
            evidence = (
                ""
                if strongest is None
                else (
                    f" ({strongest.test}: so much from an exact engine has probability "
                    f"{strongest.chance:.1e} at most)"
                )
            )
            example = f" For example, {self.example}." if self.example else ""
            return (
                f"not exact{evidence}. Likely cause: "
                f"{self.cause or 'none of the faults known here'}.{example}"
            )
        if self.detectable is None:
            return (
                "cannot tell: nothing differs, and without a local copy of the target no "
                "size can be stated"
            )
        size = f"a bias of {self.detectable:.2g} in total variation a token"
        if self.outcome == "exact":
            return (
                f"exact within this size: {size} would have been seen with probability 0.95 "
                f"(level {self.level:g})"
            )
        return (
            f"cannot tell yet: so far {size} would be seen; about {self.more_tokens} more "
            "tokens are needed"
        )

    def document(self) -> dict[str, Any]:
        """For JSON: an infinite e-value is null, its finding's statistic tells it."""
        document = asdict(self)
        for finding in document["findings"]:
            if finding["e_value"] is not None and not math.isfinite(finding["e_value"]):
                finding["e_value"] = None
        return document


def significant(findings: Sequence[Finding], level: float) -> tuple[Finding, ...]:
    """Those whose chance is at most `level` divided by their number."""
    return tuple(one for one in findings if one.chance <= level / len(findings))


def conclude(
    findings: Sequence[Finding],
    level: float,
    *,
    detectable: float | None,
    wanted: float,
    more_tokens: int | None = None,
    cause: str | None = None,
    example: str | None = None,
) -> Verdict:
    """The verdict of all findings at one level. wanted: what must have been detectable for
    "exact"."""
    ordered = tuple(sorted(findings, key=lambda one: one.chance))
    if significant(ordered, level):
        return Verdict("not exact", level, detectable, ordered, cause, example)
    if detectable is not None and detectable <= wanted:
        return Verdict("exact", level, detectable, ordered)
    return Verdict("cannot tell", level, detectable, ordered, more_tokens=more_tokens)
