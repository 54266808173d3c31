"""What drafting and verifying cost on this machine: passes of both models in turns, and the loop around them.

Passes are timed in rounds that go through every length once, so that a slow stretch of the machine hits them all. What is not a
forward (laws, rule, bookkeeping, the drafter's own work) is read off real rounds of the real decoder under the same sampling
parameters, as a fixed part and a part for every draft.
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
from draftproof.models.protocol import LanguageModel, Session, Step

LENGTHS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 17, 24, 32, 33)
"""Tokens in a pass: every one a short draft leads to, then fewer; up to 32 drafts and the pending token."""
REPEATS = 7
Clock = Callable[[], float]
Times = tuple[float, ...]


@dataclass(frozen=True)
class PassTimes:
    """context: tokens read before the timed passes. target: tokens in a pass -> seconds of every repeat. draft: seconds of
    one-token steps of the draft model, empty without one."""

    context: int
    target: Mapping[int, Times]
    draft: Times = ()

    def curve(self) -> VerifyCurve:
        """T(n) / T(1) from medians."""
        return VerifyCurve.from_times({n: median(times) for n, times in self.target.items()})

    def spread(self) -> float:
        """Half the distance between the quartiles over the median, the largest of all lengths."""
        return max(_relative_spread(times) for times in self.target.values())


@dataclass(frozen=True)
class Outside:
    """Seconds of a round outside forwards: `fixed` + `each` * drafts. plain: those of a plain round."""

    fixed: float = 0.0
    each: float = 0.0
    plain: float = 0.0


@dataclass(frozen=True)
class Costs:
    """Everything a round's time is made of."""

    passes: PassTimes
    outside: Outside = field(default=Outside())

    @property
    def target_step(self) -> float:
        """Seconds of a target pass over one token."""
        return median(self.passes.target[1])

    @property
    def draft_step(self) -> float:
        return median(self.passes.draft) if self.passes.draft else 0.0

    @property
    def cost_ratio(self) -> float:
        """Draft step over target step."""
        return self.draft_step / self.target_step

    def plain_seconds(self) -> float:
        """A token of plain decoding."""
        return self.target_step + self.outside.plain

    def round_seconds(self, drafts: int) -> Any:
        """A round with this many drafts, or one figure for each of several counts."""
        counts = np.arange(drafts + 1)
        passes = self.target_step * self.passes.curve()(counts + 1)
        outside = np.where(counts > 0, self.outside.fixed, self.outside.plain)
        return passes + counts * (self.draft_step + self.outside.each) + outside


def time_passes(
    target: LanguageModel,
    context: Sequence[int],
    longest: int,
    draft: LanguageModel | None = None,
    *,
    repeats: int = REPEATS,
    clock: Clock = perf_counter,
    tell: Callable[[int], None] = lambda done: None,
) -> PassTimes:
    """Time passes of up to `longest` tokens after `context`, and single steps of the draft model in between."""
    lengths = [n for n in LENGTHS if n <= longest]
    lengths += [longest] if longest not in lengths else []
    times: dict[int, list[float]] = {n: [] for n in lengths}
    steps: list[float] = []
    sessions = [_opened(model, context) for model in (target, draft) if model is not None]
    try:
        for repeat in range(repeats + 1):
            for n in lengths:
                if draft is not None:
                    steps.append(_timed(sessions[1], context, 1, clock))
                times[n].append(_timed(sessions[0], context, n, clock))
            tell(repeat)
    finally:
        for session in sessions:
            session.close()
    warm = len(lengths)  # the first repeat warms up
    return PassTimes(len(context), {n: tuple(t[1:]) for n, t in times.items()}, tuple(steps[warm:]))


def _opened(model: LanguageModel, context: Sequence[int]) -> Session:
    session = model.open()
    model.extend_many([Step(session, tuple(context), rows=(len(context) - 1,))])
    return session


def _timed(session: Session, context: Sequence[int], n: int, clock: Clock) -> float:
    tokens = tuple(context[i % len(context)] for i in range(n))
    session.rollback(len(context))
    began = clock()
    session.model.extend_many([Step(session, tokens)])
    _wait(session.model)
    return clock() - began


def _wait(model: Any) -> None:
    if getattr(getattr(model, "device", None), "type", "cpu") == "cuda":
        import torch

        torch.cuda.synchronize(model.device)


def time_outside(
    decoder: SpeculativeDecoder, prompt: tuple[int, ...], params: SamplingParams, lengths: Sequence[int], tokens: int = 12
) -> Outside:
    """Run the real decoder for a few tokens, plainly and with each draft length, and read what is not a forward."""
    short = replace(params, max_tokens=tokens, ignore_eos=True, min_tokens=0)
    plain = [r for r in decoder.plain.generate(prompt, short).rounds if not r.reads_prompt]
    rounds: list[Round] = []
    for length in lengths:
        run = replace(short, num_speculative_tokens=length, max_tokens=max(tokens, 2 * length + 2))
        rounds += [r for r in decoder.generate(prompt, run).rounds if not r.reads_prompt]
    return fit_outside([r.seconds.rest for r in plain], [(len(r.draft_tokens), _outside(r)) for r in rounds])


def fit_outside(plain: Sequence[float], rounds: Sequence[tuple[int, float]]) -> Outside:
    """The line through (drafts, seconds outside forwards): least squares on the medians of each count, never sloping down."""
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


def _outside(record: Round) -> float:
    return record.seconds.rest + record.seconds.draft - record.seconds.draft_forward


def _relative_spread(times: Sequence[float]) -> float:
    low, high = np.percentile(times, [25, 75])
    return float((high - low) / 2 / median(times))
