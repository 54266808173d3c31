"""`auto`, whose drafter and length are chosen round by round: predicted by walks over the texts,
round by round as it decodes.

Decisions are made on the costs that the decoder would decide by; time is reckoned by costs measured
here. One choice comes out, and no draft length to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from draftproof.core.params import SamplingParams
from draftproof.costs.timings import Timings
from draftproof.decode.controllers import length_controller
from draftproof.decode.length import LengthController
from draftproof.decode.measured_costs import measured_costs
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel
from draftproof.plan.candidate import Candidate
from draftproof.plan.choosing import Walk, laws_of, walk
from draftproof.plan.forcing import Text
from draftproof.plan.predict import Choice, spread_of
from draftproof.plan.rounds import Floats, Trace
from draftproof.plan.shown import show

WALKS = 6
"""Walks over a sampled text whose drafts are drawn; where nothing is drawn, one says all."""
SEED = 0


@dataclass(frozen=True)
class Walked:
    """Walks over every text: walks[text][i]."""

    walks: Sequence[Sequence[Walk]]

    def counted(self, value: Callable[[Walk], float]) -> Floats:
        """A count of every walk [texts, walks]."""
        return np.array([[value(one) for one in walks] for walks in self.walks])

    @property
    def share_drafted(self) -> float:
        """Of all rounds, those that drafted."""
        rounds = [record for walks in self.walks for one in walks for record in one.rounds]
        return sum(bool(record.draft_tokens) for record in rounds) / len(rounds)

    def traces(self) -> list[Trace]:
        """Of each text what is shown of drafts: overlaps where a round began, over all walks."""
        found = []
        for walks in self.walks:
            overlaps = np.array([one.overlaps for one in walks])
            count = np.isfinite(overlaps).sum(axis=0)
            mean = np.where(count > 0, np.nansum(overlaps, axis=0) / np.maximum(count, 1), np.nan)
            drafted = (count > 0).astype(np.int64)
            found.append(Trace(np.nan_to_num(mean)[:, None], drafted, mean))
        return found


def check(
    candidate: Candidate, target: LanguageModel, params: SamplingParams, batch: Sequence[int]
) -> None:
    """UsageError for what walks cannot say."""
    if max(batch) > 1:
        raise UsageError(
            "auto is predicted for one text at a time: leave --batch out, or plan with "
            "each of its drafters"
        )
    for member in candidate.config.members:
        if not member.spec.foretold:
            raise UsageError(
                f"plan cannot predict {member.method!r} among the drafters of auto, "
                "which has the target read tokens beside "
                "the draft: measure it with bench"
            )
    (judge,) = candidate.judges(target, params)
    if judge.joint:
        raise UsageError(
            f"plan predicts auto under the rules token and match, not {judge.rule}: "
            "measure it with bench"
        )


def walk_texts(
    candidate: Candidate,
    target: LanguageModel,
    texts: Sequence[Text],
    params: SamplingParams,
    tell: Callable[[str, int, int], None],
) -> Walked:
    """Walks of the candidate's decoder over `texts`."""
    config, drafter = candidate.decoder(target).config, candidate.drafter(target)
    longest = config.num_speculative_tokens
    measured = {
        name: costs.as_dict() for name, costs in measured_costs(target, drafter, longest).items()
    }
    (judge,) = candidate.judges(target, params)
    rng, found = np.random.default_rng(SEED), []

    def controller(costs: object = None) -> LengthController:
        made = length_controller(
            config if costs is None else replace(config, costs=measured), drafter
        )
        assert made is not None
        return made

    for done, text in enumerate(texts):
        tell(f"{candidate.short} is walked", done, len(texts))
        shown = show(
            target, text, drafter.wants, None if judge.fixed else laws_of(target, text, params)
        )
        walks = [
            walk(
                *(drafter, controller(), target, text, params, longest, params.max_tokens),
                judge=judge,
                rng=rng,
                prices=controller(measured),
                shown=shown,
            )
            for _ in range(1 if judge.fixed else WALKS)
        ]
        found.append(walks)
    return Walked(found)


def choice_of(
    candidate: Candidate, walked: Walked, costs: Timings, prompts: Sequence[int]
) -> Choice:
    """The one choice. prompts: the number of each text's prompt."""
    tokens = walked.counted(lambda one: sum(len(record.tokens) for record in one.rounds[1:]))
    times = walked.counted(lambda one: sum(one.times[1:]))
    rounds = walked.counted(lambda one: len(one.rounds))
    everything = walked.counted(lambda one: sum(len(record.tokens) for record in one.rounds))
    point = float(tokens.sum() / times.sum()) if times.sum() > 0 else 1.0
    interval, others = spread_of(prompts, tokens, times, costs, 1.0, point)
    drafted = np.concatenate(
        [[len(r.draft_tokens) for r in one.rounds[1:]] for walks in walked.walks for one in walks]
    )
    curve = costs.curve
    verify = (
        float(np.mean(curve(np.minimum(drafted + 1, curve.tokens[-1])))) - 1.0
        if len(drafted)
        else 0.0
    )
    extra = float(times.sum() / max((rounds - 1).sum(), 1)) - 1.0
    return Choice(
        candidate.config.method,
        candidate.name,
        candidate.config.num_speculative_tokens,
        float(everything.sum() / rounds.sum()),
        interval,
        others,
        None,
        {"draft": max(extra - verify, 0.0), "verify": verify, "outside": 0.0},
        chosen=True,
    )
