"""Rounds over a recorded text: what k drafts a round would have brought on it, position by
position, in expectation.

Given the text that a lossless decoder emitted, whether the token at a position was an accepted
draft is a coin of its own: target and drafter emit x together with mass min(target_law,
draft_law)(x) out of target_law(x), so the coin's chance is min(1, draft_law(x) / target_law(x)),
and coins of different positions are independent. Where rounds begin is then a Markov chain along
the text, and sums over it are exact: no sampling, and no average acceptance in place of the real
ones. A fixed guess is the case of a one-hot draft law: the coin is 1 where the guess is the token,
else 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.core.formulas import checked_length
from draftproof.core.records import ROOT
from draftproof.core.tree import TreeShape
from draftproof.errors import UsageError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """One drafter on one text of n tokens, rounds looked at up to K drafts.

    accept: [n, K], the chance that draft i of a round that begins at token s is accepted once
    reached (entry [s, i] is about token s + i); 0 beyond what was drafted. drafted: [n], how many
    drafts a round at s has when K are asked for. overlaps: [n], sum of min(target_law, draft_law)
    at each token; nan where nothing was drafted. nodes: [n], tokens a round at s has the target
    verify where drafts are trees of K levels (`drafted` are levels then); None for chains."""

    accept: Floats
    drafted: NDArray[np.int64]
    overlaps: Floats
    nodes: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        n, _ = self.accept.shape
        if self.drafted.shape != (n,) or self.overlaps.shape != (n,):
            raise UsageError(f"a trace over {n} tokens needs as many draft counts and overlaps")

    @property
    def longest(self) -> int:
        return int(self.accept.shape[1])


def trace_of_coins(coins: ArrayLike, overlaps: ArrayLike, longest: int) -> Trace:
    """A drafter that drafts everywhere: the coin of a token [n] is the same in whichever round it
    falls."""
    chances = np.asarray(coins, dtype=np.float64)
    padded = np.append(chances, np.zeros(longest))
    accept = (
        np.stack([padded[i : i + len(chances)] for i in range(longest)], axis=1)
        if longest
        else np.zeros((len(chances), 0))
    )
    return Trace(accept, np.full(len(chances), longest), np.asarray(overlaps, dtype=np.float64))


def trace_of_ratios(ratios: ArrayLike, overlaps: ArrayLike, longest: int) -> Trace:
    """The rule `block`: at least i drafts of a round are kept with the smallest running product of
    draft / target, at most 1.

    ratios: draft over target at each token [n]."""
    padded = np.append(np.asarray(ratios, dtype=np.float64), np.zeros(longest))
    n = len(padded) - longest
    runs = np.stack([padded[i : i + n] for i in range(longest)], axis=1)
    return Trace(kept_shares(runs), np.full(n, longest), np.asarray(overlaps, dtype=np.float64))


def kept_shares(ratios: Floats) -> Floats:
    """Of the rule `block`: the chance [n, K] that draft i of a round is kept once the drafts before
    are. ratios: draft over target at its token."""
    kept = np.minimum(1.0, np.minimum.accumulate(np.cumprod(ratios, axis=1), axis=1))
    before = np.concatenate([np.ones((len(ratios), 1)), kept[:, :-1]], axis=1)
    return np.where(before > 0, kept / np.where(before > 0, before, 1.0), 0.0)


def trace_of_tree(
    places_of: Callable[[int], Floats], overlaps: ArrayLike, shape: TreeShape
) -> Trace:
    """Drafts of one shape. places_of: k -> [n, k], the chance that the b-th of k siblings under the
    text is accepted and is the token.

    The accepted path is the text, but which node stands for it decides how many children it has:
    chances go down the tree."""
    counts = {len(children) for children in shape.children.values()}
    n, depth = len(places_of(1)), shape.depth
    padded = {k: np.concatenate([places_of(k), np.zeros((depth, k))]) for k in counts}
    reached: dict[int, Floats] = {ROOT: np.ones(n)}
    by_level = np.zeros((n, depth + 1))
    by_level[:, 0] = 1.0
    level_of = {node: level for level, nodes in enumerate(shape.levels, 1) for node in nodes}
    for parent, children in shape.children.items():
        for place, child in enumerate(children):
            level = level_of[child]
            reached[child] = (
                reached[parent] * padded[len(children)][level - 1 : level - 1 + n, place]
            )
            by_level[:, level] += reached[child]
    before = by_level[:, :-1]
    accept = np.where(before > 0, by_level[:, 1:] / np.where(before > 0, before, 1.0), 0.0)
    room = np.minimum(depth, np.arange(n - 1, -1, -1))
    sizes = np.array(level_sizes(shape))
    return Trace(
        np.minimum(accept, 1.0),
        np.full(n, depth),
        np.asarray(overlaps, dtype=np.float64),
        sizes[room],
    )


def level_sizes(shape: TreeShape) -> list[int]:
    """Nodes in the first 0, 1, ... levels of a shape."""
    return [0, *accumulate(len(nodes) for nodes in shape.levels)]


@dataclass(frozen=True)
class Expected:
    """Expected counts over one text. by_drafts: rounds with 0, 1, ... drafted tokens, the first
    round apart; first_drafts: drafts of the first round, which reads the prompt; first_tokens:
    tokens it emits; num_tokens: all. catch_ups: rounds that draft after all drafts before were
    kept: a draft model has yet to read the last of those."""

    by_drafts: Floats
    first_drafts: int
    first_tokens: float
    num_tokens: int
    catch_ups: float = 0.0

    @property
    def num_rounds(self) -> float:
        """The first one included."""
        return float(self.by_drafts.sum()) + 1.0

    @property
    def tokens_per_round(self) -> float:
        return self.num_tokens / self.num_rounds


def expect(trace: Trace, k: int) -> Expected:
    """Exact expectation of the rounds with k drafts over the whole text; k at most
    `trace.longest`."""
    lengths, moves = _moves(trace, k)
    n, nodes = len(lengths), _nodes(trace, k, lengths)
    visits = np.zeros(n + 1)
    visits[0] = 1.0
    catch_ups = 0.0
    for s in range(n):
        width = lengths[s] + 1
        visits[s + 1 : s + 1 + width] += visits[s] * moves[s, :width]
        if _catches_up(lengths, s, width):
            catch_ups += visits[s] * moves[s, width - 1]
    first_tokens = float(moves[0] @ np.arange(1, k + 2))
    by_drafts = np.asarray(
        np.bincount(nodes[1:], weights=visits[1:n], minlength=_most(trace, k) + 1), dtype=np.float64
    )
    return Expected(by_drafts, int(nodes[0]), first_tokens, n, catch_ups)


def play(trace: Trace, k: int, rng: np.random.Generator) -> Expected:
    """One run by chance instead of the expectation, for intervals that hold a single measured
    run."""
    lengths, moves = _moves(trace, k)
    nodes = _nodes(trace, k, lengths)
    running = np.cumsum(moves, axis=1)
    coins = rng.random(len(lengths))
    by_drafts, s, first_tokens, catch_ups = np.zeros(_most(trace, k) + 1), 0, 0, 0
    while s < len(lengths):
        emitted = 1 + min(int(np.searchsorted(running[s], coins[s], side="right")), int(lengths[s]))
        if s == 0:
            first_tokens = emitted
        else:
            by_drafts[nodes[s]] += 1
        catch_ups += emitted == lengths[s] + 1 and _catches_up(lengths, s, emitted)
        s += emitted
    return Expected(by_drafts, int(nodes[0]), float(first_tokens), len(lengths), float(catch_ups))


def _catches_up(lengths: NDArray[np.int64], s: int, width: int) -> bool:
    """Whether the round after one at s that emitted all `width` tokens it could drafts again."""
    after = s + width
    return width > 1 and after < len(lengths) and lengths[after] > 0


def _nodes(trace: Trace, k: int, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drafted tokens of a round at each token of the text [n]: as many as levels for a chain."""
    if trace.nodes is None:
        return lengths
    if k != trace.longest:
        raise UsageError(f"a tree of {trace.longest} levels was recorded; it cannot stand for {k}")
    return trace.nodes


def _most(trace: Trace, k: int) -> int:
    return k if trace.nodes is None else int(trace.nodes.max(initial=0))


def _moves(trace: Trace, k: int) -> tuple[NDArray[np.int64], Floats]:
    """How many drafts a round at each token has [n] (never past the end of the text less one), and
    the chances [n, k + 1] that 0, 1, ... k of them are accepted."""
    checked_length("k", k)
    if k > trace.longest:
        raise UsageError(f"the recorded rounds go up to {trace.longest} drafts, {k} were asked for")
    n = len(trace.drafted)
    lengths = np.minimum(np.minimum(trace.drafted, k), np.arange(n - 1, -1, -1))
    inside = np.arange(k) < lengths[:, None]
    accept = np.where(inside, trace.accept[:, :k], 0.0)
    reached = np.concatenate([np.ones((n, 1)), np.cumprod(accept, axis=1)], axis=1)
    stops = reached - np.concatenate([reached[:, 1:], np.zeros((n, 1))], axis=1)
    return lengths, stops


def autocorrelation(series: ArrayLike, lag: int = 1) -> float | None:
    """Correlation of a series with itself `lag` places on; None when it is too short or
    constant."""
    values = np.asarray(series, dtype=np.float64)
    values = values[np.isfinite(values)]
    if len(values) < lag + 3 or np.ptp(values) == 0:
        return None
    centred = values - values.mean()
    return float((centred[:-lag] * centred[lag:]).mean() / (centred**2).mean())
