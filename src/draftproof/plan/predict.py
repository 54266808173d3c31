"""Tokens per round and speedup of one drafter at one draft length, from traces and costs, with two
intervals.

`speedup` is what one more run on these very prompts may show, nominally 90% of the time: another
text of the same prompts where texts are sampled, and a machine that has drifted as much as it did
between the visits of the timing. `other_prompts` is for as many other prompts of the kind: prompts
resampled as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from draftproof.core.formulas import expected_speedup
from draftproof.core.tree import tree_text
from draftproof.costs.timings import Timings
from draftproof.plan.rounds import Expected, Floats, Trace, expect, play
from draftproof.report.bootstrap import RESAMPLES, SEED, Interval, percentiles

PLAYS = 24
"""Runs by chance a text, from which resampling draws."""


@dataclass(frozen=True)
class Choice:
    """A drafter with a draft length. speedup: plain time per token over speculative, after the
    first round. iid_speedup: the textbook formula at the mean overlap, same costs; None where there
    is no one length. tree: the shape's parents, None for a chain. chosen: length and drafter are
    chosen round by round, up to `num_speculative_tokens`."""

    method: str
    drafter: str
    num_speculative_tokens: int
    tokens_per_round: float
    speedup: Interval
    other_prompts: Mapping[str, float]
    iid_speedup: float | None
    shares: Mapping[str, float]
    tree: tuple[int, ...] | None = None
    chosen: bool = False

    @property
    def num_nodes(self) -> int:
        """Drafted tokens of a full round."""
        return self.num_speculative_tokens if self.tree is None else len(self.tree)

    @property
    def shape(self) -> str:
        """`4 drafts`, `tree 2,2,1` (children per level) or, where levels are uneven, `tree of 9, 4
        levels`."""
        if self.chosen:
            return f"up to {self.num_speculative_tokens} drafts"
        if self.tree is not None:
            return f"tree {tree_text(self.tree)}"
        return f"{self.num_speculative_tokens} draft" + (
            "" if self.num_speculative_tokens == 1 else "s"
        )


@dataclass(frozen=True)
class Recorded:
    """Traces of one drafter. prompts: the number of each trace's prompt; several answers of one
    have the same. draft_passes: drafting passes of a round with 0, 1, ... drafted tokens, None for
    a chain."""

    traces: Sequence[Trace]
    prompts: Sequence[int]
    draft_passes: Any = None
    tree: tuple[int, ...] | None = None


def predict(
    method: str, drafter: str, recorded: Recorded, k: int, costs: Timings, alpha: float
) -> Choice:
    """Foretell k drafts (for a tree: levels) a round. alpha: the mean overlap, for the formula."""
    expected = [expect(trace, k) for trace in recorded.traces]
    rounds = sum(e.num_rounds for e in expected)
    point = speedup(expected, costs, recorded.draft_passes)
    interval, others = spread_of(
        recorded.prompts, *_played(recorded, k, costs), costs, costs.plain, point
    )
    iid = float(expected_speedup(alpha, k, costs.cost_ratio, float(costs.curve(k + 1))))
    shares = round_shares(expected, costs, recorded.draft_passes)
    tokens = sum(e.num_tokens for e in expected) / rounds
    return Choice(method, drafter, k, tokens, interval, others, iid, shares, recorded.tree)


def speedup(expected: Sequence[Expected], costs: Timings, draft_passes: Any = None) -> float:
    """Plain seconds over speculative seconds for the tokens after every text's first round; 1 when
    there are none."""
    tokens = sum(e.num_tokens - e.first_tokens for e in expected)
    seconds = sum(_time(e, costs, draft_passes) for e in expected)
    return tokens * costs.plain / seconds if seconds > 0 else 1.0


def _time(run: Expected, costs: Timings, draft_passes: Any) -> float:
    """Of all rounds of a run but the first, in target steps."""
    rounds = round_times(costs, len(run.by_drafts), draft_passes)
    return float(run.by_drafts @ rounds) + costs.table.read * run.catch_ups


def round_times(costs: Timings, count: int, draft_passes: Any = None) -> Floats:
    """Of rounds with 0, 1, ... `count` - 1 drafted tokens, in target steps. draft_passes: drafting
    passes of such a round; None: as many as tokens, which is a chain."""
    steps = range(count) if draft_passes is None else draft_passes
    drafting = [costs.table.round(drafts, float(steps[drafts])) for drafts in range(1, count)]
    return np.array([costs.plain, *drafting])


def _played(recorded: Recorded, k: int, costs: Timings) -> tuple[Floats, Floats]:
    """Tokens and seconds [texts, PLAYS] of runs by chance, after the first round."""
    rng = np.random.default_rng(SEED)
    plays = [[play(trace, k, rng) for _ in range(PLAYS)] for trace in recorded.traces]
    tokens = np.array([[p.num_tokens - p.first_tokens for p in runs] for runs in plays])
    return tokens, np.array(
        [[_time(p, costs, recorded.draft_passes) for p in runs] for runs in plays]
    )


def spread_of(
    prompts: Sequence[int],
    tokens: Floats,
    seconds: Floats,
    costs: Timings,
    plain: float,
    point: float,
) -> tuple[Interval, Mapping[str, float]]:
    """The speedup `point` with the percentiles of runs on these prompts, and those of runs on as
    many others.

    prompts: the number of each text's prompt. tokens, seconds: of runs [texts, runs], where plain
    decoding takes `plain` a token. A run takes one text of each prompt and one of its plays; its
    machine differs from the timings by their drift, once for the visits' own mean and once for the
    run."""
    rng = np.random.default_rng(SEED)
    groups = [np.flatnonzero(np.asarray(prompts) == p) for p in dict.fromkeys(prompts)]
    seconds = _widened(seconds, groups)
    machine = np.exp(
        costs.drift() * np.sqrt(1 + 1 / len(costs.visits)) * rng.standard_normal(RESAMPLES)
    )
    here = np.stack([rng.choice(group, RESAMPLES) for group in groups], axis=1)
    picks = rng.integers(len(groups), size=here.shape)
    elsewhere = np.take_along_axis(here, picks, axis=1)
    (low, high), (least, most) = (
        _percentiles(tokens, seconds, which, rng, machine, plain) for which in (here, elsewhere)
    )
    return Interval(point, min(low, point), max(high, point)), {
        "low": min(least, point),
        "high": max(most, point),
    }


def _widened(seconds: Any, groups: Sequence[Any]) -> Any:
    """Seconds [texts, plays] with the texts of a prompt further apart: S of them spread less about
    their mean than a new one will, in variance by (S - 1) to (S + 1)."""
    wider = seconds.copy()
    for group in groups:
        if len(group) > 1:
            means = seconds[group].mean(axis=1)
            factor = ((len(group) + 1) / (len(group) - 1)) ** 0.5 - 1
            wider[group] += (factor * (means - means.mean()))[:, None]
    return np.maximum(wider, 0.05 * seconds)


def _percentiles(
    tokens: Any, seconds: Any, texts: Any, rng: np.random.Generator, machine: Any, plain: float
) -> tuple[float, float]:
    """texts: [RESAMPLES, prompts], which text stands for each prompt."""
    runs = rng.integers(tokens.shape[1], size=texts.shape)
    spent, gained = seconds[texts, runs].sum(axis=1), tokens[texts, runs].sum(axis=1) * plain
    kept = spent > 0
    return percentiles(machine[kept] * gained[kept] / spent[kept]) if kept.any() else (1.0, 1.0)


def round_shares(
    expected: Sequence[Expected], costs: Timings, draft_passes: Any = None
) -> dict[str, float]:
    """Of an average round after the first, in units of a target step: draft, verify beyond one
    token, outside forwards."""
    by_drafts = np.zeros(max(len(e.by_drafts) for e in expected))
    for one in expected:
        by_drafts[: len(one.by_drafts)] += one.by_drafts
    if by_drafts.sum() == 0:
        return {"draft": 0.0, "verify": 0.0, "outside": 0.0}
    weights, counts = by_drafts / by_drafts.sum(), np.arange(len(by_drafts))
    steps = counts if draft_passes is None else np.asarray(draft_passes)[: len(by_drafts)]
    verify = float(weights @ costs.curve(counts + 1)) - 1
    catching = costs.table.read * sum(e.catch_ups for e in expected) / by_drafts.sum()
    draft = float(weights @ steps) * costs.table.draft + catching
    whole = float(weights @ round_times(costs, len(by_drafts), draft_passes)) + catching
    return {"draft": draft, "verify": verify, "outside": whole - 1 - verify - draft}
