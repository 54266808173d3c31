"""What drafting and verifying cost a head that is being trained, for the speedup that its held-out
acceptance promises.

Passes are timed once, before training: the target over one token and over a draft of each length
behind it, and one drafting step of the head. A head's speed does not depend on what its weights
are, its acceptance does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter

import torch

from draftproof.costs.pass_timer import Clock, PassTimer, pass_lengths
from draftproof.costs.round_costs import RoundCosts
from draftproof.costs.timings import Timings
from draftproof.heads.feature_head import Rows
from draftproof.heads.medusa import Medusa
from draftproof.models.protocol import LanguageModel
from draftproof.train.store import Text
from draftproof.train.unroll import Head

TURNS = 3
COST_CONTEXT = 128


def pass_costs_behind(
    target: LanguageModel,
    text: Text,
    longest: int,
    draft: LanguageModel | None = None,
    clock: Clock = perf_counter,
) -> Timings:
    """Passes behind the first tokens of `text`, for drafts of up to `longest` tokens, and those of
    a draft model."""
    context, lengths = text.tokens[:COST_CONTEXT], pass_lengths(longest + 1)
    with PassTimer(target, context, lengths, draft, clock=clock) as timer:
        return Timings((timer.visit(TURNS),))


def time_head(
    target: LanguageModel, head: Head, text: Text, longest: int, clock: Clock = perf_counter
) -> RoundCosts:
    """Costs behind the first tokens of `text`, for drafts of up to `longest` tokens; Medusa's heads
    all draft in one step, which is then a part of every round."""
    passes = pass_costs_behind(target, text, longest, clock=clock)
    step = _drafting_step(head, text.tokens[:COST_CONTEXT], clock) / passes.target_step
    if isinstance(head, Medusa):
        return replace(passes.table, fixed=step)
    return replace(passes.table, draft=step)


def _drafting_step(head: Head, context: Sequence[int], clock: Clock) -> float:
    """Seconds of one drafting step behind `context`: a row read and its logits, or all of Medusa's
    heads."""
    weight = next(head.parameters())
    times = []
    with torch.inference_mode():
        if isinstance(head, Medusa):
            hidden = torch.zeros(
                1, head.config.hidden_size, dtype=weight.dtype, device=weight.device
            )
            for _ in range(TURNS + 1):
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
        for _ in range(TURNS + 1):
            rows.rollback(len(context))
            began = clock()
            head.logits(rows.read(context[-1:], feature, (len(context),))).argmax().item()
            times.append(clock() - began)
    return median(times[1:])
