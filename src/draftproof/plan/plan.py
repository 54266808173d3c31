"""The plan: every drafter at every length on the caller's prompts, foretold from one reading of
texts and measured costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from draftproof.core.params import SamplingParams
from draftproof.costs.outside_passes import Outside
from draftproof.costs.pass_timer import PassTimer, PassTimes, pass_lengths
from draftproof.costs.timings import Timings
from draftproof.costs.verify_curve import VerifyCurve
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.plan.candidate import MOST_NODES, Candidate, Readings, tried_outside
from draftproof.plan.chosen import Walked, choice_of, walk_texts
from draftproof.plan.chosen import check as check_chosen
from draftproof.plan.forcing import Text, write_texts
from draftproof.plan.predict import Choice, predict
from draftproof.plan.rounds import Trace, autocorrelation
from draftproof.plan.survey import survey
from draftproof.report.bootstrap import Interval, percentiles, resampled
from draftproof.workloads.prompt_files import Encoded

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12)
MOST_TOGETHER = 256
VISITS = 3
VISITS = 3
LONGEST_CONTEXT = 1024
"""Passes are timed at the median length of prompt and half the answer, at most this many tokens."""
ANSWERS = 2
"""Answers a prompt when the target samples: texts of one prompt differ, and the interval has to
know by how much."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Foretold:
    """One candidate's part of the plan. alpha: mean overlap per drafted position. by_position: mean
    overlap of each eighth of the answers. by_workload: mean overlap. share_drafted: of positions at
    which it has anything to propose. asked: the chain lengths that were asked for, of which a tree
    of its own has the shorter ones only."""

    candidate: Candidate
    traces: tuple[Trace, ...]
    costs: Timings
    alpha: Interval
    by_position: tuple[float | None, ...]
    by_workload: Mapping[str, float | None]
    autocorrelation: float | None
    share_drafted: float
    choices: tuple[Choice, ...]
    asked: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything foretold, and what it was foretold from. prompts: one entry a text, so a prompt
    with two answers is there twice. larger: the same at each further batch size. verify: context ->
    T(n) / T(1) up to 32 tokens, at the first size."""

    prompts: tuple[Encoded, ...]
    texts: tuple[Text, ...]
    params: SamplingParams
    drafters: tuple[Foretold, ...]
    batch: int = 1
    larger: tuple[Plan, ...] = ()
    verify: Mapping[int, VerifyCurve] = field(default_factory=dict)

    @property
    def choices(self) -> list[Choice]:
        """All, the fastest first."""
        found = [choice for drafter in self.drafters for choice in drafter.choices]
        return sorted(found, key=lambda choice: -choice.speedup.point)

    @property
    def best(self) -> Choice | None:
        """The fastest choice whose interval stays above 1; None when there is none: then
        speculation is not recommended."""
        return next((choice for choice in self.choices if choice.speedup.low >= 1), None)

    def of(self, choice: Choice) -> Foretold:
        """The drafter of a choice."""
        return next(d for d in self.drafters if choice in d.choices)


def make_plan(
    target: LanguageModel,
    candidates: Sequence[Candidate],
    prompts: Sequence[Encoded],
    params: SamplingParams,
    lengths: Sequence[int] = LENGTHS,
    *,
    progress: Progress = lambda what, done, total: None,
    batch: int | Sequence[int] = 1,
    answers: int | None = None,
) -> Plan:
    """Write or take the answers, read them with every drafter, time the machine in between,
    foretell.

    lengths: of chains; a candidate with a tree has the tree's depth. batch: sequences decoded
    together; of several, ascending, the first is the plan's own and the others are in `larger`.
    answers: of each prompt, by default 1 when greedy and ANSWERS when sampled. UsageError: no
    candidate, no prompt, a length below 1, a drafter or rule that cannot be foretold, or prompts
    that leave nothing to predict."""
    sizes = (batch,) if isinstance(batch, int) else tuple(batch)
    if not candidates or not prompts:
        raise UsageError("a plan needs at least one drafter and one prompt")
    check_request(
        lengths, sizes, all(candidate.config.shape is not None for candidate in candidates)
    )
    _check_candidates(candidates, target, params, sizes)
    each = answers or (1 if params.temperature == 0 else ANSWERS)
    lengths, longest = sorted(set(lengths)), max(lengths)
    timed = [(size, candidate) for size in sizes for candidate in candidates]
    timers = _timers(target, timed, prompts, params, longest)
    steps = _Steps(progress, VISITS + len(candidates) + 2 + any(not p.answer_ids for p in prompts))

    def visit() -> None:
        tell = steps.begin()
        for place, (timer, (size, candidate)) in enumerate(zip(timers, timed, strict=True)):
            together = f", batch {size}" if len(sizes) > 1 else ""
            tell(f"timing passes, {candidate.short}{together}", place, len(timers))
            found[place].append(timer.visit())

    found: list[list[Any]] = [[] for _ in timers]
    try:
        visit()
        repeated, texts = _texts(target, prompts, params, each, steps)
        visit()
        own = [candidate.lengths(target, lengths) for candidate in candidates]
        readings = [
            _read(c, target, texts, params, mine, steps.begin())
            for c, mine in zip(candidates, own, strict=True)
        ]
        visit()
    finally:
        for timer in timers:
            timer.close()
    drafters: dict[int, list[Foretold]] = {size: [] for size in sizes}
    tell = steps.begin()
    for place, (candidate, mine) in enumerate(zip(candidates, readings, strict=True)):
        tell(f"timing rounds, {candidate.short}", place, len(candidates))
        first = found[place]
        outside = tried_outside(
            candidate, target, _nearest(texts, first[0].context), params, max(own[place])
        )
        for size, visits in zip(sizes, found[place :: len(candidates)], strict=True):
            costs = _costs(candidate, target, visits, outside)
            made = _foretell(candidate, mine, costs, repeated, own[place])
            drafters[size].append(replace(made, asked=tuple(lengths)))
    curves = survey(target, texts, LONGEST_CONTEXT, steps.begin(), batch=sizes[0])
    plans = [
        Plan(tuple(repeated), tuple(texts), params, tuple(drafters[size]), size) for size in sizes
    ]
    return replace(plans[0], larger=tuple(plans[1:]), verify=curves)


def _check_candidates(
    candidates: Sequence[Candidate],
    target: LanguageModel,
    params: SamplingParams,
    sizes: Sequence[int],
) -> None:
    for candidate in candidates:
        candidate.check(target, params)
        if candidate.chooses:
            check_chosen(candidate, target, params, sizes)


class _Steps:
    """Numbers the steps of a plan in what is told, as every step has a count of its own: "2/6 the
    target writes answers"."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress, self.total, self.number = progress, total, 0

    def begin(self) -> Progress:
        """The next step; gives what tells of it."""
        self.number += 1
        place = f"{self.number}/{self.total}"
        return lambda what, done, total: self.progress(f"{place} {what}", done, total)


def _read(
    candidate: Candidate,
    target: LanguageModel,
    texts: Sequence[Text],
    params: SamplingParams,
    lengths: Sequence[int],
    tell: Progress,
) -> Readings | Walked:
    """What the texts say of a drafter, with the work done here, where it is told of, and not when
    it is asked for."""
    if candidate.chooses:
        return walk_texts(candidate, target, texts, params, tell)
    readings = candidate.read(target, texts, params, max(lengths), tell)
    readings.prepare(lengths, tell)
    return readings


def check_request(lengths: Sequence[int], sizes: Sequence[int], trees_alone: bool) -> None:
    """UsageError for lengths or batch sizes that cannot be planned. trees_alone: all drafters have
    a tree of their own."""
    if not lengths or min(lengths) < 1 or max(lengths) > MOST_NODES:
        raise UsageError(f"draft lengths go from 1 to {MOST_NODES}, got {list(lengths)}")
    if (
        not sizes
        or list(sizes) != sorted(set(sizes))
        or not 1 <= sizes[0] <= sizes[-1] <= MOST_TOGETHER
    ):
        said = ", ".join(map(str, sizes))
        raise UsageError(
            f"batch is {said}; allowed: 1 to {MOST_TOGETHER} sequences, or several such "
            "numbers that ascend"
        )
    if len(sizes) > 1 and trees_alone:
        raise UsageError(
            "several batch sizes make a schedule of draft lengths, and these drafters "
            "have trees: give one size"
        )


def _timers(
    target: LanguageModel,
    timed: Sequence[tuple[int, Candidate]],
    prompts: Sequence[Encoded],
    params: SamplingParams,
    longest: int,
) -> list[PassTimer]:
    """Passes are timed at the median context: a prompt and half its answer, which need not be known
    for that."""
    half = [(len(p.answer_ids) or params.max_tokens or 2) // 2 for p in prompts]
    length = min(
        int(np.median([len(p.ids) + h for p, h in zip(prompts, half, strict=True)])),
        LONGEST_CONTEXT,
    )
    ids = [token for p in prompts for token in p.ids]
    context = [ids[i % len(ids)] for i in range(length)]
    timers = []
    for batch, candidate in timed:
        most = max(longest, candidate.most_nodes, candidate.drafter(target).most_read(longest)) + 1
        draft = candidate.passes_of(target)
        limits = [
            model.max_length
            for model in (target, draft)
            if model is not None and model.max_length is not None
        ]
        here = min([length, *(max(limit - most, limit // 2) for limit in limits)])
        most = min([most, *(limit - here for limit in limits)])
        timers.append(PassTimer(target, context[:here], pass_lengths(most), draft, batch=batch))
    return timers


def _costs(
    candidate: Candidate, target: LanguageModel, visits: Sequence[PassTimes], outside: Outside
) -> Timings:
    """What a draft costs outside passes is the draft step of a head."""
    if not candidate.drafter(target).wants.hidden:
        return Timings(tuple(visits), outside)
    return Timings(tuple(visits), replace(outside, each=0.0), head_step=outside.each)


def _nearest(texts: Sequence[Text], context: int) -> Text:
    return min(texts, key=lambda text: abs(len(text.prompt) + len(text.answer) // 2 - context))


def _texts(
    target: LanguageModel,
    prompts: Sequence[Encoded],
    params: SamplingParams,
    each: int,
    steps: _Steps,
) -> tuple[list[Encoded], list[Text]]:
    """Given answers where there are some, `each` of the target's own elsewhere, with the prompt of
    every text. An answer of one token tells nothing."""
    repeated = [p for p in prompts for _ in range(1 if p.answer_ids else each)]
    missing = [p.ids for p in repeated if not p.answer_ids]
    written: Iterator[Text] = iter(())
    if missing:
        tell = steps.begin()
        written = iter(
            write_texts(
                target,
                missing,
                params,
                lambda done: tell("the target writes answers", done, len(missing)),
            )
        )
    texts = [
        Text(p.ids, p.answer_ids, own=False) if p.answer_ids else next(written) for p in repeated
    ]
    if max(len(text.answer) for text in texts) < 2:
        raise UsageError(
            "every answer ends with its first token, so there is nothing to speculate "
            "on; give other prompts"
        )
    return repeated, texts


def _foretell(
    candidate: Candidate,
    readings: Readings | Walked,
    costs: Timings,
    prompts: Sequence[Encoded],
    lengths: Sequence[int],
) -> Foretold:
    numbers = [next(i for i, other in enumerate(prompts) if other is p) for p in prompts]
    if isinstance(readings, Walked):
        first: Sequence[Trace] = readings.traces()
        alpha = mean_overlap(first, numbers)
        choices: tuple[Choice, ...] = (choice_of(candidate, readings, costs, numbers),)
    else:
        recorded = readings.recorded(lengths, numbers, costs)
        first = recorded[-1 if candidate.config.shape else len(lengths) - 1][1].traces
        alpha = mean_overlap(first, numbers)
        method, name = candidate.config.method, candidate.name
        choices = tuple(predict(method, name, one, k, costs, alpha.point) for k, one in recorded)
    by_workload = {
        name: _mean(
            np.concatenate(
                [t.overlaps for t, p in zip(first, prompts, strict=True) if p.item.workload == name]
            )
        )
        for name in dict.fromkeys(p.item.workload for p in prompts)
    }
    share = (
        readings.share_drafted
        if isinstance(readings, Walked)
        else float(np.isfinite(np.concatenate([t.overlaps for t in first])).mean())
    )
    correlations = [c for t in first if (c := autocorrelation(t.overlaps)) is not None]
    return Foretold(
        candidate,
        tuple(first),
        costs,
        alpha,
        by_position=tuple(_mean(part) for part in _eighths(first)),
        by_workload=by_workload,
        autocorrelation=float(np.mean(correlations)) if correlations else None,
        share_drafted=share,
        choices=choices,
    )


def mean_overlap(traces: Sequence[Trace], prompts: Sequence[int] | None = None) -> Interval:
    """Mean overlap per drafted position with its interval over resampled prompts; 0 when nothing
    was ever drafted.

    prompts: the number of each trace's prompt, as several answers of one are no independent
    evidence; None: one each."""
    numbers = range(len(traces)) if prompts is None else prompts
    _, group = np.unique(np.asarray(list(numbers)), return_inverse=True)
    sums = np.bincount(group, weights=[np.nansum(t.overlaps) for t in traces])
    counts = np.bincount(group, weights=[np.isfinite(t.overlaps).sum() for t in traces])
    if counts.sum() == 0:
        return Interval(0.0, 0.0, 0.0)
    picks = resampled(len(counts))
    totals = counts[picks].sum(axis=1)
    means = sums[picks].sum(axis=1)[totals > 0] / totals[totals > 0]
    return Interval(float(sums.sum() / counts.sum()), *percentiles(means))


def _eighths(traces: Sequence[Trace]) -> list[np.ndarray]:
    """Overlaps by place in the answer, in eight equal stretches of the longest one."""
    width = max(1, -(-max(len(t.overlaps) for t in traces) // 8))
    return [
        np.concatenate([t.overlaps[i * width : (i + 1) * width] for t in traces]) for i in range(8)
    ]


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def choice_as_dict(choice: Choice) -> dict[str, Any]:
    """One choice for JSON."""
    return asdict(choice)
