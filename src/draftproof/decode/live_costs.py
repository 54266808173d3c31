"""Costs that follow the clock, for `adaptive="live"`: what rounds really take, where it differs from the table.

Decisions then depend on how busy the machine is. The emitted law stays exact (a length is still decided before its draft, from
rounds that are over), but a sampled run replays with its seed only under the rules `match` and `gumbel`, whose text does not
depend on the lengths.
"""

from __future__ import annotations

from dataclasses import replace

from draftproof.core.records import Round
from draftproof.core.round_costs import RoundCosts

WEIGHT = 0.1
"""What one round's times count against those before it."""


class LiveCosts:
    """costs: the table, corrected by the rounds observed so far."""

    def __init__(self, costs: RoundCosts) -> None:
        self.costs = costs
        self._step: float | None = None
        """Seconds of a target pass over one token, running."""

    def observe(self, record: Round, steps: int) -> None:
        """A round with `steps` steps of the drafter has ended; one that read the prompt says nothing about a step."""
        seconds = record.seconds
        if record.reads_prompt or seconds.verify <= 0:
            return
        measured = seconds.verify / self.costs.verify_ratio(len(record.draft_tokens) + 1)
        self._step = measured if self._step is None else _towards(self._step, measured)
        if steps and seconds.draft_forward > 0:
            draft = seconds.draft_forward / steps / self._step
            self.costs = replace(self.costs, draft=_towards(self.costs.draft, draft))


def _towards(old: float, new: float) -> float:
    return old + WEIGHT * (new - old)
