"""What drafting and verifying cost on this machine: passes of both models in turns, and the loop
around them.

A machine's speed drifts over tens of seconds, which no number of repeats within one second shows.
Passes are therefore timed in several visits, spread over the plan's other work; within a visit in
rounds that go through every length once. The spread between visits, not within them, is what a
later run may differ by. What is not a forward (laws, rule, bookkeeping, the drafter's own work) is
read off real rounds of the real decoder under the same sampling parameters, as a fixed part and a
part for every draft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from draftproof.core.params import SamplingParams
from draftproof.core.records import Round
from draftproof.core.verify_curve import VerifyCurve
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.decode.measured_costs import outside_passes, passes_waited_for
from draftproof.models.protocol import LanguageModel, Session, Step
from draftproof.models.steps import wait_for

LENGTHS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 17, 24, 32, 33)
"""Tokens in a pass: every one a short draft leads to, then fewer; up to 32 drafts and the pending
token."""
REPEATS = 3
VISITS = 3
Clock = Callable[[], float]
Times = tuple[float, ...]


@dataclass(frozen=True)
class PassTimes:
    """One visit. context: tokens read before the timed passes. target: tokens in a pass -> seconds
    of every repeat. draft, draft_pairs: seconds of passes of the draft model over one and over two
    tokens, empty without one. All passes hold `batch` sequences."""

    context: int
    target: Mapping[int, Times]
    draft: Times = ()
    batch: int = 1
    draft_pairs: Times = ()


@dataclass(frozen=True)
class Outside:
    """Seconds of a round outside forwards: `fixed` + `each` * drafts. plain: those of a plain
    round."""

    fixed: float = 0.0
    each: float = 0.0
    plain: float = 0.0


@dataclass(frozen=True)
class Costs:
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
            (median(visit.draft), median(visit.target[1])) for visit in self.visits if visit.draft
        ]
        if not pairs:
            return self.head_step * self.batch / self.target_step
        return float(np.mean([draft / target for draft, target in pairs]))

    @property
    def catch_up(self) -> float:
        """Seconds by which a draft pass over two tokens is dearer than one over one: what the first
        pass of a round costs more after a round that kept all drafts; 0 for a head. Where it was
        not timed it is taken to be dearer as the target's is."""
        if self.head_step:
            return 0.0
        pairs = [
            median(v.draft_pairs) / median(v.draft)
            for v in self.visits
            if v.draft_pairs and v.draft
        ]
        ratio = (
            float(np.mean(pairs))
            if pairs
            else float(self.curve()(2))
            if self.curve().tokens[-1] > 1
            else 1.0
        )
        return self.draft_step * max(0.0, ratio - 1)

    def plain_seconds(self) -> float:
        """A token of plain decoding, of every sequence."""
        return self.target_step + self.batch * self.outside.plain

    def round_seconds(self, drafts: int, draft_passes: Any = None) -> Any:
        """Seconds of a round with 0, 1, ... `drafts` drafted tokens, an array.

        draft_passes: drafting passes of such a round, in draft steps; None: as many as tokens,
        which is a chain."""
        counts = np.arange(drafts + 1)
        steps = counts if draft_passes is None else np.asarray(draft_passes)
        passes = self.target_step * self.curve()(counts + 1)
        outside = np.where(
            counts > 0, self.outside.fixed + counts * self.outside.each, self.outside.plain
        )
        return passes + steps * self.draft_step + self.batch * outside

    def drift(self) -> float:
        """Standard deviation of the relative cost of a pass (over a single step) or a draft step
        from one visit to another, pooled over all of them; 0 when there was one visit."""
        rows = [
            [median(t) / median(v.target[1]) for n, t in v.target.items() if n > 1]
            for v in self.visits
        ]
        rows = [
            row + ([median(v.draft) / median(v.target[1])] if v.draft else [])
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


class PassTimer:
    """Sessions of both models after `context`, kept open between visits. longest: tokens in the
    longest pass.

    Sequences of a batch hold the same context; clock: seconds."""

    def __init__(
        self,
        target: LanguageModel,
        context: Sequence[int],
        longest: int,
        draft: LanguageModel | None = None,
        *,
        batch: int = 1,
        clock: Clock = perf_counter,
    ) -> None:
        self.context, self.batch, self._clock = tuple(context), batch, clock
        self.lengths = sorted({n for n in LENGTHS if n <= longest} | {longest})
        models = [model for model in (target, draft) if model is not None]
        self._sessions = [[model.open() for _ in range(batch)] for model in models]
        for model, sessions in zip(models, self._sessions, strict=True):
            rows = (len(self.context) - 1,)
            tokens = tuple(
                token % model.vocab_size for token in self.context
            )  # a draft model may have fewer ids
            model.extend_many([Step(session, tokens, rows=rows) for session in sessions])

    def visit(self, repeats: int = REPEATS) -> PassTimes:
        """Every length in turn, `repeats` times after one turn that warms up; single draft steps in
        between."""
        times: dict[int, list[float]] = {n: [] for n in self.lengths}
        steps: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(repeats + 1):
            for place, n in enumerate(self.lengths):
                if len(self._sessions) > 1:
                    width = 1 + place % 2
                    steps[width].append(self._timed(self._sessions[1], width))
                times[n].append(self._timed(self._sessions[0], n))
        kept = {n: tuple(t[1:]) for n, t in times.items()}
        single, double = (tuple(t[len(t) // (repeats + 1) :]) for t in steps.values())
        return PassTimes(len(self.context), kept, single, self.batch, double)

    def close(self) -> None:
        """Free the sessions."""
        for session in (s for sessions in self._sessions for s in sessions):
            session.close()

    def _timed(self, sessions: Sequence[Session], n: int) -> float:
        model = sessions[0].model
        tokens = tuple(self.context[i % len(self.context)] % model.vocab_size for i in range(n))
        for session in sessions:
            session.rollback(len(self.context))
        began = self._clock()
        model.extend_many([Step(session, tokens) for session in sessions])
        wait_for(model.device)
        return self._clock() - began


def time_outside(
    decoder: SpeculativeDecoder,
    prompt: tuple[int, ...],
    params: SamplingParams,
    lengths: Sequence[int],
    tokens: int = 12,
) -> Outside:
    """Run the real decoder for a few tokens, plainly and with each draft length, and read what is
    not a forward."""
    short = replace(params, max_tokens=tokens, ignore_eos=True, min_tokens=0)
    rounds: list[Round] = []
    with passes_waited_for(decoder.target, decoder.drafter):
        plain = [r for r in decoder.plain.generate(prompt, short).rounds if not r.reads_prompt]
        for length in lengths:
            run = replace(
                short, num_speculative_tokens=length, max_tokens=max(tokens, 2 * length + 2)
            )
            rounds += [r for r in decoder.generate(prompt, run).rounds if not r.reads_prompt]
    return fit_outside(
        [r.seconds.rest for r in plain],
        [(len(r.draft_tokens), outside_passes(r.seconds, decoder.drafter)) for r in rounds],
    )


def fit_outside(plain: Sequence[float], rounds: Sequence[tuple[int, float]]) -> Outside:
    """The line through (drafts, seconds outside forwards): least squares on the medians of each
    count, never sloping down."""
    base = median(plain) if plain else 0.0
    by_count: dict[int, list[float]] = {}
    for drafts, seconds in rounds:
        by_count.setdefault(drafts, []).append(seconds)
    points = [(count, median(seconds)) for count, seconds in sorted(by_count.items()) if count]
    if not points:
        return Outside(base, 0.0, base)
    if len(points) == 1:
        return Outside(points[0][1], 0.0, base)
    weights = [len(by_count[count]) ** 0.5 for count, _ in points]
    slope, fixed = np.polyfit([c for c, _ in points], [s for _, s in points], 1, w=weights)
    if slope < 0 or fixed < 0:
        return Outside(float(np.mean([s for _, s in points])), 0.0, base)
    return Outside(float(fixed), float(slope), base)


def _relative_spread(times: Sequence[float]) -> float:
    low, high = np.percentile(times, [25, 75])
    return float((high - low) / 2 / median(times))
