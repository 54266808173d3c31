"""Where in an expected text a growing text stands, however it has been edited.

The text follows the expected one token by token until they part. From then on every new token is
looked for in the expected text, near the place where they parted first: what agrees there with the
end of the text is where the text goes on from. So an insertion comes back to the place it left, a
deletion goes on behind what is missing, a replacement behind what it stands for, and a block that
was moved is found wherever it was. A replacement that has been seen is expected again where the
same tokens stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass

NEAR, FAR = 8, 64
"""A single token found again is believed up to NEAR expected tokens behind the place where the
texts parted, two up to FAR, and elsewhere UNIQUE."""
UNIQUE = 3

LONGEST = 16
"""Longest agreement looked at, and most tokens of a replacement that is remembered."""

REMEMBERED = 16
"""How many replacements are remembered, the latest ones."""


@dataclass(frozen=True)
class Parting:
    """expected: the place of the first expected token that did not come. text: how long the text
    was then."""

    expected: int
    text: int


class ExpectedText:
    """An expected text [ids], and the place in it where the text read so far stands.

    place: of the expected token that comes next; None while the text is somewhere else. agreed: how
    many tokens before the place agree with the end of the text."""

    def __init__(self, expected: Sequence[int]) -> None:
        self._expected = tuple(expected)
        self._places: dict[int, list[int]] = {}
        for place, token in enumerate(self._expected):
            self._places.setdefault(token, []).append(place)
        self.text: list[int] = []
        self.place: int | None = 0
        self.agreed = 0
        self._parting = Parting(0, 0)
        self._replaced: dict[tuple[int, ...], tuple[int, ...]] = {}

    def fork(self) -> ExpectedText:
        """A copy that reads on its own; the expected text and its index are never changed and stay
        shared."""
        other = copy(self)
        other.text, other._replaced = list(self.text), dict(self._replaced)
        return other

    def read(self, token: int) -> None:
        """The text goes on with `token`."""
        self.text.append(token)
        if self.place is not None and self._expected[self.place : self.place + 1] == (token,):
            self.place, self.agreed = self.place + 1, self.agreed + 1
            self._forget_replacements_before(self.place)
            return
        if self.place is not None:
            self._part(self.place)
        self.place, self.agreed = self._found_again(token)
        if self.place is not None:
            self._remember_replacement(self.place - self.agreed)

    def going_on(self) -> Iterator[int]:
        """The tokens expected next, with replacements seen before. Where the text has just left the
        expected one, as if it replaced it token by token."""
        place = self.place
        if place is None:
            since = len(self.text) - self._parting.text
            place = self._parting.expected + since if since <= NEAR else len(self._expected)
        while place < len(self._expected):
            old = next(
                (old for old in self._replaced if self._expected[place : place + len(old)] == old),
                None,
            )
            yield from self._replaced[old] if old else self._expected[place : place + 1]
            place += len(old) if old else 1

    def _part(self, place: int) -> None:
        """The text has gone another way than expected at `place`. Where it had just been found
        again, by a few tokens that turned out to stand there by chance, it still is where it parted
        before."""
        if self.agreed >= UNIQUE or self._parting.text == 0:
            self._parting = Parting(place, len(self.text) - 1)

    def _found_again(self, token: int) -> tuple[int | None, int]:
        """The place behind the best agreement with the end of the text, and how long that is;
        (None, 0) when there is none."""
        best: tuple[int, int] | None = None
        chosen: tuple[int | None, int] = (None, 0)
        for last in self._places.get(token, ()):
            ahead = last - self._parting.expected
            agreed = self._agreement(last)
            needed = 1 if 0 <= ahead <= NEAR else 2 if 0 <= ahead <= FAR else UNIQUE
            if agreed >= needed and (best is None or (agreed, -abs(ahead)) > best):
                best, chosen = (agreed, -abs(ahead)), (last + 1, agreed)
        return chosen

    def _agreement(self, last: int) -> int:
        """How many tokens up to the expected one at `last` agree with the end of the text."""
        most = min(LONGEST, last + 1, len(self.text))
        return next((n for n in range(most) if self._expected[last - n] != self.text[-1 - n]), most)

    def _remember_replacement(self, until: int) -> None:
        """The expected tokens from the parting to `until` came out as others: expect that again,
        before the same next token."""
        old = self._expected[self._parting.expected : until + 1]
        new = tuple(self.text[self._parting.text : len(self.text) - self.agreed + 1])
        if 2 <= len(old) <= LONGEST and 2 <= len(new) <= LONGEST:
            self._replaced.pop(old, None)
            self._replaced[old] = new
            if len(self._replaced) > REMEMBERED:
                del self._replaced[next(iter(self._replaced))]

    def _forget_replacements_before(self, place: int) -> None:
        """What stood there unchanged is no longer expected to be replaced."""
        for old in [
            old for old in self._replaced if self._expected[max(place - len(old), 0) : place] == old
        ]:
            del self._replaced[old]
