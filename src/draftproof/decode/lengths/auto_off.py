"""Auto-off: never much slower than plain decoding, whatever the text and however wrong the drafter.

Two parts, both counting in plain tokens (the time of a target pass over one token, by the table of
costs). The `Ledger` knows how far the request has fallen behind plain decoding and allows no round
that could carry it further than a fixed share: this is the bound, and it holds for every outcome,
because it reckons each round as if it emitted one token only. The `Switch` of a drafter turns it
off when its recent rounds were clearly worth less than they cost, and lets it try again after
intervals that double.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Literal

SHARE = 0.03
"""How much more work than plain decoding is allowed."""
HORIZON = 200
"""The share is of at least this many tokens: a shorter text can be behind by SHARE * HORIZON plain
tokens."""
WINDOW, FEWEST = 24, 8
"""Rounds a drafter is judged by, and the fewest."""
SLACK = 1.0
"""Plain tokens it may be behind in them. Rounds are noisy: without slack a drafter that gives 1.16
times plain decoding was off for a third of the text. One that is worth nothing costs a little more
for it; the ledger bounds that."""
FIRST_WAIT = 4
LONGEST_WAIT = 256
PROBE = 2
"""Drafts of a round that only asks whether a drafter has become useful."""

Status = Literal["on", "off", "probe"]


class Ledger:
    """What a request's rounds have cost beyond plain decoding."""

    def __init__(self, share: float = SHARE) -> None:
        self.share = share
        self.behind = 0.0
        """Plain tokens' time spent beyond what plain decoding would have taken; negative while
        ahead."""
        self.emitted = 0
        self.prompt = 0.0
        """Work of reading the prompt, which plain decoding does too; what a chat has read before
        counts as well."""

    def affords(self, cost: float) -> bool:
        """Whether a round of this cost would keep within the share if it emitted one token only."""
        return self.behind + cost - 1.0 <= self.share * (
            self.prompt + max(HORIZON, self.emitted + 1)
        )

    def enter(self, cost: float, emitted: int) -> None:
        """A round has ended."""
        self.behind += cost - emitted
        self.emitted += emitted

    def state_key(self) -> Hashable:
        return (self.behind, self.emitted, self.prompt)


class Switch:
    """Whether one drafter is on. Positions are counts of emitted tokens."""

    def __init__(self) -> None:
        self._window: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._wait = FIRST_WAIT
        self._again: int | None = None

    @property
    def used(self) -> bool:
        """Whether it differs from a new one."""
        return bool(self._window) or self._again is not None or self._wait != FIRST_WAIT

    def status(self, emitted: int) -> Status:
        """On, off, or due for a round that tries again."""
        if self._again is None:
            return "on"
        return "off" if emitted < self._again else "probe"

    def turn_off(self, emitted: int) -> None:
        """Off until the interval is over; the next one is twice as long."""
        self._again = emitted + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        self._window.clear()

    def observe(self, cost: float, tokens: int, emitted: int) -> None:
        """A round that this drafter drafted in has ended: `cost`, its `tokens`, and all tokens
        `emitted` so far."""
        probing = self._again is not None
        self._window.append((cost, tokens))
        spent, got = sum(c for c, _ in self._window), sum(t for _, t in self._window)
        lost = got < spent if probing else len(self._window) >= FEWEST and got + SLACK < spent
        if lost:
            self.turn_off(emitted)
        elif probing:
            self._again = None
        elif len(self._window) == WINDOW:
            self._wait = FIRST_WAIT

    def state_key(self) -> Hashable:
        return (tuple(self._window), self._wait, self._again)
