"""What drafting and verifying cost on this machine: passes of both models in turns, and the loop
around them.

A machine's speed drifts over tens of seconds, which no number of repeats within one second shows.
Passes are therefore timed in several visits, spread over other work; within a visit in turns that
go through every length once. The spread between visits, not within them, is what a later run may
differ by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

import numpy as np

from draftproof.costs.outside_passes import Outside
from draftproof.costs.pass_timer import PassTimes, Times
from draftproof.costs.round_costs import RoundCosts
from draftproof.costs.verify_curve import VerifyCurve


@dataclass(frozen=True)
class Timings:
    """Everything a round's time is made of."""

    visits: tuple[PassTimes, ...]
    outside: Outside = field(default=Outside())
    head_step: float = 0.0
    """Seconds of a draft that takes no pass of a model but work on the target's states, of one
    sequence."""

    @property
    def context(self) -> int:
        return self.visits[0].context

    @property
    def batch(self) -> int:
        return self.visits[0].batch

    @property
    def times(self) -> dict[int, Times]:
        """Tokens in a pass -> seconds of every repeat of every visit."""
        return {
            n: tuple(t for visit in self.visits for t in visit.target[n])
            for n in self.visits[0].target
        }

    @cached_property
    def curve(self) -> VerifyCurve:
        """T(n) / T(1): the mean over visits of each visit's ratio of medians."""
        ratios = [
            {n: median(t) / median(visit.target[1]) for n, t in visit.target.items()}
            for visit in self.visits
        ]
        return VerifyCurve.from_times(
            {n: float(np.mean([r[n] for r in ratios])) for n in ratios[0]}
        )

    @property
    def target_step(self) -> float:
        """Seconds of a target pass over one token of every sequence."""
        return float(np.mean([median(visit.target[1]) for visit in self.visits]))

    @property
    def draft_step(self) -> float:
        return self.cost_ratio * self.target_step

    @property
    def cost_ratio(self) -> float:
        """Draft step over target step, the mean over visits; 0 where drafting takes neither a model
        nor a head. A head's work for a batch is taken to be that for one, as many times."""
        pairs = [
            median(visit.draft[1]) / median(visit.target[1])
            for visit in self.visits
            if 1 in visit.draft
        ]
        if not pairs:
            return self.head_step * self.batch / self.target_step
        return float(np.mean(pairs))

    @property
    def catch_up(self) -> float:
        """By how much a draft pass over two tokens is dearer than one over one, in target steps:
        what the first pass of a round costs more after a round that kept all drafts; 0 for a head.
        Where it was not timed it is taken to be dearer as the target's is."""
        if self.head_step:
            return 0.0
        pairs = [median(v.draft[2]) / median(v.draft[1]) for v in self.visits if 2 in v.draft]
        ratio = float(np.mean(pairs)) if pairs else self.curve.beyond(2)
        return self.cost_ratio * max(0.0, ratio - 1)

    @property
    def plain(self) -> float:
        """A token of plain decoding, of every sequence, in target steps."""
        return 1.0 + self.batch * self.outside.plain / self.target_step

    @cached_property
    def table(self) -> RoundCosts:
        """The costs of rounds that draft, with all that they take outside passes; those of a plain
        round are `plain`."""
        loop = self.batch / self.target_step
        return RoundCosts(
            self.curve.points,
            draft=self.cost_ratio,
            read=self.catch_up,
            fixed=loop * self.outside.fixed,
            each=loop * self.outside.each,
        )

    def drift(self) -> float:
        """Standard deviation of the relative cost of a pass (over a single step) or a draft step
        from one visit to another, pooled over all of them; 0 when there was one visit."""
        rows = [
            [median(t) / median(v.target[1]) for n, t in v.target.items() if n > 1]
            for v in self.visits
        ]
        rows = [
            row + ([median(v.draft[1]) / median(v.target[1])] if 1 in v.draft else [])
            for row, v in zip(rows, self.visits, strict=True)
        ]
        if len(rows) < 2 or not rows[0]:
            return 0.0
        logs = np.log(np.asarray(rows))
        return float(np.sqrt(logs.var(axis=0, ddof=1).mean()))

    def spread(self) -> float:
        """Half the distance between the quartiles over the median within a visit, the largest of
        all lengths and visits."""
        return max(
            _relative_spread(times) for visit in self.visits for times in visit.target.values()
        )


def _relative_spread(times: Sequence[float]) -> float:
    low, high = np.percentile(times, [25, 75])
    return float((high - low) / 2 / median(times))
