"""Length rules on acceptance that comes and goes, simulated: what a length that adapts can gain
over the best fixed one.

Chances of acceptance along the text follow a stationary first-order process through a logistic
curve; before each draft its chance is known, as a sure or unsure draft law would tell. In plain
tokens, a target pass costs 1 plus `verify` a draft, and a draft costs `draft`. The rules are those
of decoding: the threshold on the survival product, and a cut at each draft's own chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from draftproof.core.records import Round
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.lengths.survival import Survival

LONGEST = 16
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rule = Literal["fixed", "survival", "cut"]


@dataclass(frozen=True)
class Prices:
    """draft: a draft's own cost. verify: what each draft adds to the target's pass."""

    draft: float = 0.08
    verify: float = 0.01

    @property
    def each(self) -> float:
        return self.draft + self.verify


@dataclass(frozen=True)
class Process:
    """chance = 1 / (1 + exp(-(mean + spread x))), x a unit first-order process with this
    correlation from token to token."""

    mean: float
    spread: float
    correlation: float

    def draw(self, streams: int, tokens: int, seed: int) -> tuple[Floats, Bools]:
        """Chances [streams, tokens + LONGEST + 1], and whether a draft at each place would be
        accepted."""
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal((tokens + LONGEST + 1, streams))
        state = np.empty_like(noise)
        state[0] = noise[0]
        for i in range(1, len(noise)):
            state[i] = self.correlation * state[i - 1] + np.sqrt(1 - self.correlation**2) * noise[i]
        chances: Floats = 1 / (1 + np.exp(-(self.mean + self.spread * state.T)))
        return chances, rng.random(chances.shape) < chances


def speedup(chances: Floats, accepted: Bools, rule: Rule, value: float, prices: Prices) -> float:
    """Tokens per plain token's time under one rule. value: of `fixed` the length, of `survival`
    lambda, of `cut` the least chance of a draft that is made."""
    streams, width = chances.shape
    tokens = width - LONGEST - 1
    place, cost, emitted = np.zeros(streams, int), 0.0, 0
    ahead = np.arange(LONGEST)
    while len(live := np.nonzero(place < tokens)[0]):
        window = chances[live[:, None], place[live, None] + ahead]
        kept = accepted[live[:, None], place[live, None] + ahead]
        drafts = _wanted(window, rule, value, prices)
        count = np.minimum(drafts, np.cumprod(kept, axis=1).sum(axis=1))
        place[live] += count + 1
        emitted += int((count + 1).sum())
        cost += float((1 + drafts * prices.each).sum())
    return emitted / cost


def _wanted(window: Floats, rule: Rule, value: float, prices: Prices) -> NDArray[np.int64]:
    """Drafts made in each stream, given the chances of the next LONGEST tokens."""
    if rule == "fixed":
        return np.full(len(window), int(value))
    go_on = window >= value if rule == "cut" else np.cumprod(window, axis=1) >= value * prices.each
    return np.asarray(np.cumprod(go_on, axis=1).sum(axis=1))


def survival_speedup(chances: Floats, accepted: Bools, prices: Prices, rounds: int = 5) -> float:
    """The survival rule with lambda at its own speedup: the fixed point of a few rounds, from plain
    decoding's 1."""
    rate = 1.0
    for _ in range(rounds):
        rate = speedup(chances, accepted, "survival", rate, prices)
    return rate


def decoding_speedup(chances: Floats, accepted: Bools, prices: Prices) -> float:
    """The rule that decoding runs (`decode/lengths/survival.py`), learning from its own rounds: it
    knows a draft's chance only once the drafter has worked for it, so a draft it then declines has
    cost `draft`."""
    costs = RoundCosts(
        verify=((1, 1.0), (LONGEST + 1, 1.0 + LONGEST * prices.verify)), draft=prices.draft
    )
    cost, emitted = 0.0, 0
    for stream, kept in zip(chances, accepted, strict=True):
        rule = Survival(costs, sureness=float)
        place, tokens = 0, len(stream) - LONGEST - 1
        while place < tokens:
            drafts = steps = 0
            if rule.begin(LONGEST, None):
                while rule.room(drafts) > 0:
                    steps += 1
                    if not rule.go_on(stream[place + drafts], drafts):
                        break
                    drafts += 1
            count = int(np.cumprod(kept[place : place + drafts]).sum())
            rule.observe(_round(place, drafts, count))
            place, emitted = place + count + 1, emitted + count + 1
            cost += 1.0 + drafts * prices.verify + steps * prices.draft
    return emitted / cost


def _round(start: int, drafts: int, accepted: int) -> Round:
    tokens = (0,) * (accepted + 1)
    chain = tuple(range(-1, drafts - 1))
    return Round(start, (0,) * drafts, chain, tokens, (), accepted, min(accepted + 1, drafts))
