"""`lookahead`: the target drafts for itself by Jacobi iteration, and no model is needed
(2402.02057).

A window of guesses at coming positions is carried along: level 0 is a chain of `window` tokens that
begins with the pending one, and level l holds in each column the token that the target put after
that column's token of level l - 1. Every round the target reads the window beside the draft, in the
same pass and under its own mask; its best tokens after the last level are the next level, and each
column yields an n-gram that starts with its token of level 0. The n-grams seen to start with the
pending token are the draft: a trie of fixed guesses, so any rule for fixed drafts is exact, greedy
or sampled, and the bonus stays.

The n-gram length is the draft length + 1. Cost: (n - 1) * (window + n-grams) tokens a pass, at
most. Not covered: the published code's filling of the pool from the prompt, which is what `ngram`
does.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy

from draftproof.core.records import ROOT, Observation, Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.options import Option, count_from
from draftproof.drafters.protocol import Drafter, DraftSession, Memory, Request, Wants
from draftproof.drafters.registry import Config, Method, Parts, Proof
from draftproof.errors import UsageError


class Lookahead(Drafter):
    """window: columns of the window. depth: tokens of an n-gram after its first. pool: n-grams kept
    for one first token, the latest; as many are guessed at most."""

    name = "lookahead"
    selections: frozenset[Selection] = frozenset({"fixed"})
    trees = True
    wants = Wants(top_ids=1)
    memories: tuple[Memory, ...] = ()

    def __init__(self, window: int = 5, depth: int = 3, pool: int = 5) -> None:
        if min(window, depth, pool) < 1:
            raise UsageError(
                f"window, depth and pool are whole numbers from 1; got {window}, {depth} and {pool}"
            )
        self.window, self.depth, self.pool = window, depth, pool

    def most_read(self, depth: int) -> int:
        """The most tokens the target reads for n-grams of at most `depth` tokens, the window
        included."""
        return self.pool * min(depth, self.depth) + self.window * self.depth - 1

    def open(self, request: Request) -> LookaheadSession:
        if not request.target.supports_trees:
            raise UsageError(
                f"lookahead reads its window beside the draft, and {request.target.name} "
                "reads chains only"
            )
        return LookaheadSession(self, request)


class LookaheadSession(DraftSession):
    """levels[l][i]: the guess for the token i + l after the pending one. pool: first token -> what
    followed it, latest last."""

    def __init__(self, drafter: Lookahead, request: Request) -> None:
        self._window, self._depth, self._limit = drafter.window, drafter.depth, drafter.pool
        self._laws = request.laws
        self._levels: list[list[int]] = [[]]
        self._pool: dict[int, list[tuple[int, ...]]] = {}

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        for guess in reversed(self._pool.get(context[-1], ())):
            self._merge(guess, context, draft)
        self._fill(context)
        self._read_window(draft)

    def _merge(self, guess: Sequence[int], context: Sequence[int], draft: DraftBuilder) -> None:
        """Add what the trie of guesses does not hold yet of this one, up to a token that the
        parameters forbid."""
        node = ROOT
        for depth, token in enumerate(guess):
            below = [
                n
                for n in range(draft.num_nodes)
                if draft.parent(n) == node and draft.token(n) == token
            ]
            if not below and (
                draft.room_under(node) <= 0 or self._laws.forbids(token, context, guess[:depth])
            ):
                return
            node = below[0] if below else draft.guess(token, node)

    def _fill(self, context: Sequence[int]) -> None:
        """Complete every level with tokens of the context, picked by position; level 0 begins with
        the pending token."""
        for number, level in enumerate(self._levels):
            for column in range(len(level), self._window):
                place = len(context) + number + column
                level.append(context[(place * 2654435761 + number) % len(context)])
        self._levels[0][0] = context[-1]

    def _read_window(self, draft: DraftBuilder) -> None:
        """Level 0 is a chain under the pending token, column 0; a deeper token hangs under its
        column's token above it."""
        last = len(self._levels) - 1
        above = [ROOT]
        for token in self._levels[0][1:]:
            above.append(draft.read_beside(token, above[-1], wanted=last == 0))
        for number, level in enumerate(self._levels[1:], start=1):
            above = [
                draft.read_beside(token, above[column], wanted=number == last)
                for column, token in enumerate(level)
            ]

    def observe(self, seen: Observation) -> None:
        """Take in the next level, and move the window to the token that is pending now."""
        if seen.round is None:
            return
        shift = len(seen.round.tokens)
        newest = self._newest(seen)
        if newest:
            self._levels.append(newest)
        if len(self._levels) > self._depth:
            for first, *guess in zip(*self._levels, strict=True):
                self._remember(first, tuple(guess))
            del self._levels[0]
            shift -= 1  # what is level l now stood one position further on as level l + 1
        self._levels = [level[shift:] for level in self._levels]

    def _newest(self, seen: Observation) -> list[int]:
        """The target's best token after each column of the last level; [] when the window was not
        read in this round."""
        if seen.top_ids is None or len(self._levels[0]) < self._window:
            return []
        pending = [seen.top_ids[0]] if len(self._levels) == 1 else []
        beside = [] if seen.beside_top_ids is None else list(seen.beside_top_ids)
        rows = [*pending, *beside]
        return [int(row[0]) for row in rows] if len(rows) == self._window else []

    def _remember(self, first: int, guess: tuple[int, ...]) -> None:
        """Put the n-gram last of its kind, and forget the oldest beyond the limit."""
        kept = [other for other in self._pool.get(first, []) if other != guess]
        self._pool[first] = [*kept, guess][-self._limit :]

    def state_key(self) -> Hashable:
        levels = tuple(tuple(level) for level in self._levels)
        return levels, tuple(
            sorted((first, tuple(guesses)) for first, guesses in self._pool.items())
        )

    def fork(self) -> LookaheadSession:
        other = copy(self)
        other._levels = [list(level) for level in self._levels]
        other._pool = {first: list(guesses) for first, guesses in self._pool.items()}
        return other

    def close(self) -> None:
        self._levels, self._pool = [[]], {}


def _make(config: Config, parts: Parts) -> Lookahead:
    """The length of an n-gram is the draft length + 1."""
    if not parts.target.supports_trees:
        raise UsageError(
            f"method 'lookahead' reads its window as a tree, and {parts.target.name} "
            "reads chains only"
        )
    return Lookahead(
        config.option("lookahead_window"),
        max(config.num_speculative_tokens, 1),
        config.option("lookahead_pool"),
    )


LOOKAHEAD = (
    Option("lookahead_window", 5, count_from(1), "columns of the Jacobi window (5)", vllm=False),
    Option(
        "lookahead_pool",
        5,
        count_from(1),
        "n-grams kept and guessed for one first token (5)",
        vllm=False,
    ),
)
METHODS = (
    Method(
        "lookahead",
        "the target drafts for itself: Jacobi iteration and the n-grams it leaves",
        3,
        _make,
        options=LOOKAHEAD,
        foretold=False,
        examples={"lookahead": lambda: Lookahead(window=3, depth=3, pool=3)},
        proof={"lookahead": Proof(lambda: Lookahead(window=2, depth=2, pool=2))},
    ),
)
