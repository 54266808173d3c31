"""How many tokens to draft: one file a rule, and the list of them. The key `adaptive` of
`speculative_config` names one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.lengths.fixed import Fixed
from draftproof.decode.lengths.heuristic import Heuristic
from draftproof.decode.lengths.lab import Lab
from draftproof.decode.lengths.protocol import LengthRule
from draftproof.decode.lengths.survival import Survival

MOST = 16
"""The longest draft of a length that adapts, unless `num_speculative_tokens` says otherwise."""


@dataclass(frozen=True)
class Length:
    """make: a rule for one request. weighs: whether it needs costs. live: whether its costs follow
    the clock."""

    make: Callable[[RoundCosts], LengthRule]
    weighs: bool = True
    live: bool = False


LENGTHS: dict[str, Length] = {
    "fixed": Length(lambda costs: Fixed(), weighs=False),
    "heuristic": Length(lambda costs: Heuristic(), weighs=False),
    "lab": Length(Lab),
    "survival": Length(Survival),
    "live": Length(Survival, live=True),
}
