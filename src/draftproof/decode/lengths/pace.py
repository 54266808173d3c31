"""The pace of a request: tokens per time of its rounds so far, the recent ones above all.

What a round takes longer than a plain one is time in which other rounds would have emitted at this
pace. So a draft is worth its cost only if it is expected to bring more than that: beside strong
matches, a weak drafter has to beat them and not plain decoding (the threshold of a stopping problem
with renewal reward, with the text as the renewals).
"""

from __future__ import annotations

from collections.abc import Hashable

FADE = 0.97
"""What a round counts after each further one: about the last thirty count."""
START_TIME, START_PACE = 4.0, 1.3
"""What is taken for granted at the beginning: that drafts bring this much, in the time of so many
plain tokens."""


class Pace:
    """One request's."""

    def __init__(self) -> None:
        self._tokens, self._time = START_PACE * START_TIME, START_TIME

    @property
    def now(self) -> float:
        """Tokens per plain token's time; never less than plain decoding's."""
        return max(self._tokens / self._time, 1.0)

    def enter(self, time: float, tokens: int) -> None:
        """A round has ended."""
        self._tokens, self._time = FADE * self._tokens + tokens, FADE * self._time + time

    def state_key(self) -> Hashable:
        return (self._tokens, self._time)
