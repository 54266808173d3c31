"""Costs that follow the clock, for `adaptive="live"`: what rounds really take, where it differs
from the table.

Decisions then depend on how busy the machine is. The emitted law stays exact (a length is still
decided before its draft, from rounds that are over), but a sampled run replays with its seed only
under the rules `match` and `gumbel`, whose text does not depend on the lengths. On a GPU, whose
passes are not waited for in decoding, the clock shows less of them than they take."""

from __future__ import annotations

from dataclasses import replace

from draftproof.core.records import Round
from draftproof.costs.round_costs import RoundCosts

WEIGHT = 0.1
"""What one round's times count against those before it."""


class LiveCosts:
    """costs: the table, corrected by the rounds observed so far. by_token: the same where `costs`
    counts levels of a tree."""

    def __init__(self, costs: RoundCosts, by_token: RoundCosts | None = None) -> None:
        self.costs, self.by_token = costs, by_token
        self._step: float | None = None
        """Seconds of a target pass over one token, running."""

    def observe(self, record: Round, steps: int) -> None:
        """A round with `steps` steps of the drafter has ended; one that read the prompt says
        nothing about a step."""
        seconds = record.seconds
        if record.reads_prompt or seconds.verify <= 0:
            return
        read = 1 + len(record.draft_tokens) + record.num_read_beside
        measured = seconds.verify / (self.by_token or self.costs).verify_ratio(read)
        self._step = measured if self._step is None else _towards(self._step, measured)
        if steps and seconds.draft_forward > 0:
            draft = seconds.draft_forward / steps / self._step
            self.costs = replace(self.costs, draft=_towards(self.costs.draft, draft))
            self.by_token = self.by_token and replace(self.by_token, draft=self.costs.draft)


def _towards(old: float, new: float) -> float:
    return old + WEIGHT * (new - old)
