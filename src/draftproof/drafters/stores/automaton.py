"""A suffix automaton with counts: every stretch of a growing text, how often it occurs, and what
follows it.

At most two states and three transitions a token (Blumer et al. 1985), so what is stored grows
linearly and a token is appended in constant time on average. Stretches that occur at the same
places share a state. Occurrences are counted exactly for stretches of up to `depth` tokens: an
append then touches at most `depth` counts, however repetitive the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Follower = tuple[int, int, int, int]
"""A token, how often it follows, where it last did, and the state after it."""

Match = tuple[int, int, int]
"""A state, and the shortest and the longest of the matched suffixes that share it."""

BREAK = -1
"""Stands between two texts in one automaton. It is no token: nothing matches across it and nobody
is offered it."""


class SuffixAutomaton:
    """Texts of token ids. State 0 is the empty stretch; `count[state]` is how often its stretches
    occur, `latest[state]` where the last of them ends.

    depth: the longest stretch whose occurrences are counted."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.tokens: list[int] = []
        self.follow: list[dict[int, int]] = [{}]
        self.link: list[int] = [-1]
        self.length: list[int] = [0]
        self.count: list[int] = [0]
        self.latest: list[int] = [0]
        self._last = 0
        self._tail, self._tail_length = 0, 0

    def fork(self) -> SuffixAutomaton:
        """A copy that grows on its own."""
        other = SuffixAutomaton(self.depth)
        other.tokens, other.follow = list(self.tokens), [dict(after) for after in self.follow]
        other.link, other.length = list(self.link), list(self.length)
        other.count, other.latest = list(self.count), list(self.latest)
        other._last, other._tail, other._tail_length = self._last, self._tail, self._tail_length
        return other

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens one by one."""
        for token in tokens:
            self._append(token)

    def suffixes(self) -> Iterator[Match]:
        """The text's own last tokens, up to `depth` of them; all that was seen after them hangs
        under these states."""
        return self._upwards(self._tail, self._tail_length)

    def matches(self, context: Sequence[int]) -> Iterator[Match]:
        """As `suffixes`, for the last tokens of another text, as far as they occur here. One walk
        over `depth` tokens."""
        state = length = 0
        for token in context[-self.depth :]:
            while state > 0 and token not in self.follow[state]:
                state = self.link[state]
                length = self.length[state]
            if token in self.follow[state]:
                state, length = self.follow[state][token], length + 1
        return self._upwards(state, length)

    def _upwards(self, state: int, length: int) -> Iterator[Match]:
        """From the state of the longest match to that of the shortest."""
        while state > 0:
            shorter = self.length[self.link[state]]
            yield state, shorter + 1, length
            state, length = self.link[state], shorter

    def followers(self, state: int) -> list[Follower]:
        """What came after the stretches of `state`, in no order."""
        count, latest = self.count, self.latest
        return [
            (token, count[s], latest[s], s)
            for token, s in self.follow[state].items()
            if token != BREAK
        ]

    def _append(self, token: int) -> None:
        self.tokens.append(token)
        current = self._new(self.length[self._last] + 1, {}, 0)
        state = self._last
        while state >= 0 and token not in self.follow[state]:
            self.follow[state][token] = current
            state = self.link[state]
        if state >= 0:
            after = self.follow[state][token]
            self.link[current] = (
                after
                if self.length[after] == self.length[state] + 1
                else self._split(state, token, after)
            )
        self._last = current
        self._count(token)

    def _new(self, length: int, follow: dict[int, int], link: int) -> int:
        self.length.append(length)
        self.follow.append(follow)
        self.link.append(link)
        self.count.append(0)
        self.latest.append(0)
        return len(self.length) - 1

    def _split(self, state: int, token: int, after: int) -> int:
        """The shorter stretches of `after` now occur at one place more than its longer ones: a
        state of their own."""
        shorter = self._new(self.length[state] + 1, dict(self.follow[after]), self.link[after])
        self.count[shorter], self.latest[shorter] = self.count[after], self.latest[after]
        self.link[after] = shorter
        while state >= 0 and self.follow[state].get(token) == after:
            self.follow[state][token] = shorter
            state = self.link[state]
        return shorter

    def _count(self, token: int) -> None:
        """The last `depth` tokens and all their suffixes occur once more."""
        state, length = self._holding(self._tail, self._tail_length)  # a split may have moved it
        state, length = self.follow[state][token], min(length + 1, self.depth)
        self._tail, self._tail_length = self._holding(state, length)
        state = self._tail
        while state > 0:
            self.count[state] += 1
            self.latest[state] = len(self.tokens)
            state = self.link[state]

    def _holding(self, state: int, length: int) -> tuple[int, int]:
        """The state that holds the last `length` tokens of `state`'s stretches."""
        while self.length[state] and self.length[self.link[state]] >= length:
            state = self.link[state]
        return state, length
