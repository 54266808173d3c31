"""The speedup a plan would give a head at this moment of its training: held-out acceptance on timed
passes of this machine.

Passes are timed once, before training: the target over one token and over a draft of each length
behind it, and one drafting step of the head. A head's speed does not depend on what its weights
are, its acceptance does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from draftproof.heads.feature_head import Rows
from draftproof.heads.medusa import Medusa
from draftproof.models.protocol import LanguageModel
from draftproof.plan.costs import Costs, PassTimer
from draftproof.train.store import Text
from draftproof.train.unroll import Head

REPEATS = 3
CONTEXT = 128


@dataclass(frozen=True)
class HeadCosts:
    """In steps of the target over one token. verify[k]: a pass over k drafts and the pending token,
    verify[0] = 1. draft: one drafting step of the head; Medusa's heads all draft in one."""

    verify: tuple[float, ...]
    draft: float
    steps_a_draft: bool = True

    def best(self, marginal: Sequence[float]) -> tuple[int, float]:
        """(draft length, speedup over plain decoding) that promise most, given the chance that
        drafts 1 .. i are all accepted; length 0 and 1.0 when no length promises a gain."""
        chosen = (0, 1.0)
        for k in range(1, min(len(marginal), len(self.verify) - 1) + 1):
            seconds = self.verify[k] + self.draft * (k if self.steps_a_draft else 1)
            found = (1 + sum(marginal[:k])) / seconds
            if found > chosen[1]:
                chosen = (k, found)
        return chosen


def time_head(
    target: LanguageModel,
    head: Head,
    text: Text,
    longest: int,
    clock: Callable[[], float] = perf_counter,
) -> HeadCosts:
    """Time passes behind the first tokens of `text`, for drafts of up to `longest` tokens."""
    context = text.tokens[:CONTEXT]
    timer = PassTimer(target, context, longest + 1, clock=clock)
    try:
        costs = Costs((timer.visit(REPEATS),))
    finally:
        timer.close()
    curve = costs.curve()
    verify = tuple(float(curve(k + 1)) for k in range(longest + 1))
    return HeadCosts(
        verify,
        _drafting_step(head, context, clock) / costs.target_step,
        not isinstance(head, Medusa),
    )


def _drafting_step(head: Head, context: Sequence[int], clock: Callable[[], float]) -> float:
    """Seconds of one drafting step behind `context`: a row read and its logits, or all of Medusa's
    heads."""
    weight = next(head.parameters())
    times = []
    with torch.inference_mode():
        if isinstance(head, Medusa):
            hidden = torch.zeros(
                1, head.config.hidden_size, dtype=weight.dtype, device=weight.device
            )
            for _ in range(REPEATS + 1):
                began = clock()
                for place in range(head.config.num_heads):
                    head.logits(hidden, place).argmax().item()
                times.append(clock() - began)
            return median(times[1:])
        rows = Rows(head)
        features = torch.zeros(
            len(context), head.config.hidden_size, dtype=weight.dtype, device=weight.device
        )
        feature = rows.read(context, features, range(len(context)))[-1:]
        for _ in range(REPEATS + 1):
            rows.rollback(len(context))
            began = clock()
            head.logits(rows.read(context[-1:], feature, (len(context),))).argmax().item()
            times.append(clock() - began)
    return median(times[1:])
