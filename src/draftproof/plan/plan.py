"""The plan: every drafter at every length on the caller's prompts, foretold from one reading of texts and measured costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from draftproof.bench.bootstrap import Interval, percentiles, resampled
from draftproof.bench.workload import Encoded
from draftproof.core.params import SamplingParams
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.plan.answers import write_answers
from draftproof.plan.costs import Costs, time_outside, time_passes
from draftproof.plan.forcing import Text, force
from draftproof.plan.predict import Choice, predict
from draftproof.plan.replay import replay
from draftproof.plan.rounds import Trace, autocorrelation, trace_of_coins

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12)
LONGEST_CONTEXT = 1024
"""Passes are timed at the median length of prompt and half the answer, at most this many tokens."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Candidate:
    """A drafter to plan with: its config, and the draft model's loaded weights where it has one."""

    config: SpeculativeConfig
    draft: LanguageModel | None = None

    @property
    def name(self) -> str:
        return f"{self.config.method} {self.config.model}" if self.config.model else self.config.method


@dataclass(frozen=True)
class Foretold:
    """One candidate's part of the plan. alpha: mean overlap per drafted position. by_position: mean overlap of each eighth of
    the answers. by_workload: mean overlap. share_drafted: of positions at which it has anything to propose."""

    candidate: Candidate
    traces: tuple[Trace, ...]
    costs: Costs
    alpha: Interval
    by_position: tuple[float | None, ...]
    by_workload: Mapping[str, float | None]
    autocorrelation: float | None
    share_drafted: float
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Plan:
    """Everything foretold, and what it was foretold from."""

    prompts: tuple[Encoded, ...]
    texts: tuple[Text, ...]
    params: SamplingParams
    drafters: tuple[Foretold, ...]

    @property
    def choices(self) -> list[Choice]:
        """All, the fastest first."""
        found = [choice for drafter in self.drafters for choice in drafter.choices]
        return sorted(found, key=lambda choice: -choice.speedup.point)

    @property
    def best(self) -> Choice | None:
        """The fastest choice whose interval stays above 1; None when there is none: then speculation is not recommended."""
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
    repeats: int = 7,
) -> Plan:
    """Write or take the answers, read them with every drafter, time the machine, foretell.

    UsageError: no candidate, no prompt, a length below 1, or prompts that leave nothing to predict."""
    if not candidates or not prompts:
        raise UsageError("a plan needs at least one drafter and one prompt")
    if not lengths or min(lengths) < 1 or max(lengths) > 32:
        raise UsageError(f"draft lengths go from 1 to 32, got {list(lengths)}")
    texts = _texts(target, prompts, params, progress)
    longest = max(lengths)
    drafters = []
    for candidate in candidates:
        traces = traces_of(candidate, target, texts, params, longest, progress)
        costs = costs_of(candidate, target, texts, params, longest, progress, repeats)
        drafters.append(_foretell(candidate, traces, costs, prompts, sorted(set(lengths))))
    return Plan(tuple(prompts), tuple(texts), params, tuple(drafters))


def _texts(target: LanguageModel, prompts: Sequence[Encoded], params: SamplingParams, progress: Progress) -> list[Text]:
    """Given answers where there are some, the target's own elsewhere. An answer of one token tells nothing."""
    missing = [p.ids for p in prompts if not p.answer_ids]
    written = iter(
        write_answers(target, missing, params, lambda done: progress("the target writes answers", done, len(missing)))
        if missing
        else ()
    )
    texts = [Text(p.ids, p.answer_ids, own=False) if p.answer_ids else next(written) for p in prompts]
    if max(len(text.answer) for text in texts) < 2:
        raise UsageError("every answer ends with its first token, so there is nothing to speculate on; give other prompts")
    return texts


def traces_of(
    candidate: Candidate,
    target: LanguageModel,
    texts: Sequence[Text],
    params: SamplingParams,
    longest: int,
    progress: Progress,
) -> list[Trace]:
    """One trace a text: by teacher forcing for a draft model, by replay for a drafter without one.

    On a given answer the coins of its tokens say nothing about what the target would emit; overlaps stand in for them."""
    if candidate.draft is not None:
        forced = force(
            target, candidate.draft, texts, params, lambda done: progress(f"{candidate.name} reads", done, len(texts))
        )
        pairs = zip(forced, texts, strict=True)
        return [trace_of_coins(f.coins if text.own else f.overlaps, f.overlaps, longest) for f, text in pairs]
    drafter = SpeculativeDecoder(None, target, getattr(target, "tokenizer", None), speculative_config=candidate.config).drafter
    assert drafter is not None
    traces = []
    for number, text in enumerate(texts):
        progress(f"{candidate.name} is replayed", number, len(texts))
        traces.append(replay(drafter, target, text, params, longest))
    return traces


def costs_of(
    candidate: Candidate,
    target: LanguageModel,
    texts: Sequence[Text],
    params: SamplingParams,
    longest: int,
    progress: Progress,
    repeats: int,
) -> Costs:
    """Passes at the median context of these texts, and the loop around them on the text nearest to it."""
    middle = [len(text.prompt) + len(text.answer) // 2 for text in texts]
    nearest = texts[int(np.argmin(np.abs(np.asarray(middle) - np.median(middle))))]
    context = (*nearest.prompt, *nearest.answer)[: min(len(nearest.prompt) + len(nearest.answer) // 2, LONGEST_CONTEXT)]
    most = longest + 1 if target.max_length is None else min(longest + 1, target.max_length - len(context))
    passes = time_passes(
        target,
        context,
        most,
        candidate.draft,
        repeats=repeats,
        tell=lambda done: progress(f"timing passes with {candidate.name}", done, repeats + 1),
    )
    decoder = SpeculativeDecoder(
        candidate.draft, target, getattr(target, "tokenizer", None), speculative_config=candidate.config
    )
    progress(f"timing rounds with {candidate.name}", repeats, repeats + 1)
    few = sorted({1, max(1, longest // 2), longest})
    return Costs(passes, time_outside(decoder, nearest.prompt, params, few))


def _foretell(
    candidate: Candidate, traces: Sequence[Trace], costs: Costs, prompts: Sequence[Encoded], lengths: Sequence[int]
) -> Foretold:
    alpha = mean_overlap(traces)
    by_workload = {
        name: _mean(np.concatenate([t.overlaps for t, p in zip(traces, prompts, strict=True) if p.item.workload == name]))
        for name in dict.fromkeys(p.item.workload for p in prompts)
    }
    everything = np.concatenate([t.overlaps for t in traces])
    correlations = [c for t in traces if (c := autocorrelation(t.overlaps)) is not None]
    choices = [predict(candidate.config.method, candidate.name, traces, k, costs, alpha.point) for k in lengths]
    return Foretold(
        candidate,
        tuple(traces),
        costs,
        alpha,
        by_position=tuple(_mean(part) for part in _eighths(traces)),
        by_workload=by_workload,
        autocorrelation=float(np.mean(correlations)) if correlations else None,
        share_drafted=float(np.mean(np.isfinite(everything))),
        choices=tuple(choices),
    )


def mean_overlap(traces: Sequence[Trace]) -> Interval:
    """Mean overlap per drafted position with its interval over resampled prompts; 0 when nothing was ever drafted."""
    sums = np.array([np.nansum(t.overlaps) for t in traces])
    counts = np.array([np.isfinite(t.overlaps).sum() for t in traces])
    if counts.sum() == 0:
        return Interval(0.0, 0.0, 0.0)
    picks = resampled(len(traces))
    totals = counts[picks].sum(axis=1)
    means = sums[picks].sum(axis=1)[totals > 0] / totals[totals > 0]
    return Interval(float(sums.sum() / counts.sum()), *percentiles(means))


def _eighths(traces: Sequence[Trace]) -> list[np.ndarray]:
    """Overlaps by place in the answer, in eight equal stretches of the longest one."""
    width = max(1, -(-max(len(t.overlaps) for t in traces) // 8))
    return [np.concatenate([t.overlaps[i * width : (i + 1) * width] for t in traces]) for i in range(8)]


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def choice_as_dict(choice: Choice) -> dict[str, Any]:
    """One choice for JSON."""
    return asdict(choice)
