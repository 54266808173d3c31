"""A source of chance that walks every outcome instead of drawing one: how exactness is proven here.

`outcomes(run)` calls `run(chance)` once for every sequence of outcomes that has positive
probability and yields (probability, result, keys used). A key may be consumed once along a path; a
repeat raises `KeyRepeatedError`, because two draws from one key are not independent. With
`share=True` a repeated key is instead followed through: what is known of its uniform is kept as an
interval, so the biased law of a program that reuses keys comes out exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, TypeVar

from array_api_compat import array_namespace, device

from draftproof.core.chance import Purpose, Scalar
from draftproof.core.laws import in_memory
from draftproof.core.records import Array
from draftproof.errors import KeyRepeatedError

Key = tuple[int, int, int]
Interval = tuple[float, float]
Known = Mapping[Key, Interval]
Result = TypeVar("Result")
KeyFunction = Callable[[int, Purpose, int], Key]


def round_key(start: int, purpose: Purpose, node: int) -> Key:
    """The key `KeyedChance` uses: target draws by absolute position, all others by round and
    node."""
    return (purpose, start + node, 0) if purpose is Purpose.TARGET else (purpose, start, node + 1)


def position_key(start: int, purpose: Purpose, node: int) -> Key:
    """A wrong one, for showing what it does: every draw keyed by absolute position alone."""
    return (purpose, start + node, 0)


class Choice(NamedTuple):
    """One choice on a path: what it was for, its node, which outcome it had (a trial's success is
    0, a draw's is its token), and the probability of that outcome."""

    purpose: Purpose
    node: int
    outcome: int
    probability: float


@dataclass(frozen=True)
class Outcome:
    """One way a run can go: its probability, what it leaves known of every key it consumed, and its
    choices in order."""

    probability: float
    known: Known
    choices: tuple[Choice, ...] = ()


@dataclass
class EnumeratingChance:
    """Follows `script` (indices of outcomes), then the first possible outcome at every further
    choice, noting the others."""

    start: int
    script: tuple[int, ...]
    known: dict[Key, Interval]
    share: bool
    key: KeyFunction
    probability: float = 1.0
    taken: list[int] = field(default_factory=list)
    siblings: list[tuple[int, ...]] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)

    def bernoulli(self, probability: float, purpose: Purpose, node: int) -> bool:
        return self._choose((float(probability),), None, purpose, node) == 0

    def draw(self, law: Array, purpose: Purpose, node: int) -> Scalar:
        return _beside(law, self._choose(*_running_sums(tuple(law.tolist())), purpose, node))

    def draw_draft(self, law: Array, node: int, depth: int) -> Scalar:
        return self.draw(law, Purpose.DRAFT, node)

    def draw_target(self, law: Array, depth: int) -> Scalar:
        return self.draw(law, Purpose.TARGET, depth)

    def first_failure(self, probabilities: Array, purpose: Purpose) -> Scalar:
        values = probabilities.tolist()
        stop = next(
            (i for i, p in enumerate(values) if not self.bernoulli(p, purpose, i)), len(values)
        )
        return _beside(probabilities, stop)

    def last_success(self, probabilities: Array, purpose: Purpose) -> Scalar:
        values = probabilities.tolist()
        return _beside(
            probabilities,
            max((i + 1 for i, p in enumerate(values) if self.bernoulli(p, purpose, i)), default=0),
        )

    def _choose(
        self, bounds: tuple[float, ...], last: int | None, purpose: Purpose, node: int
    ) -> int:
        """Which of the intervals cut by `bounds` the keyed uniform falls into; the rest of [0, 1)
        is one more outcome."""
        key = self.key(self.start, purpose, node)
        if key in self.known and not self.share:
            raise KeyRepeatedError(
                f"key {purpose.name.lower()}, {key[1:]} was consumed twice on one path"
            )
        low, high = self.known.get(key, (0.0, 1.0))
        pieces = _pieces(bounds, low, high, last)
        turn = len(self.taken)
        choice = self.script[turn] if turn < len(self.script) else next(iter(pieces))
        self.siblings.append(tuple(index for index in pieces if index > choice))
        left, right = pieces[choice]
        share = (right - left) / (high - low)
        self.probability *= share
        self.choices.append(Choice(purpose, node, choice, share))
        self.known[key] = (left, right)
        self.taken.append(choice)
        return choice


def _beside(array: Array, choice: int) -> Scalar:
    """`choice` as `KeyedChance` gives it: an int for what lies in a CPU's memory, else a 0-d array
    where `array` lies, so that rules take the very branches they take on an accelerator."""
    return (
        choice if in_memory(array) else array_namespace(array).asarray(choice, device=device(array))
    )


@lru_cache(maxsize=1 << 16)
def _running_sums(weights: tuple[float, ...]) -> tuple[tuple[float, ...], int]:
    """Sums of the weights up to each, as shares of the whole, and the last index with any."""
    total = sum(weights)
    return tuple(accumulate(weight / total for weight in weights)), max(
        i for i, w in enumerate(weights) if w > 0
    )


@lru_cache(maxsize=1 << 16)
def _pieces(
    bounds: tuple[float, ...], low: float, high: float, last: int | None
) -> dict[int, Interval]:
    """index -> the non-empty part of [low, high) between 0, the bounds, and 1; draws end at index
    `last`."""
    edges = [0.0, *bounds]
    if last is None:
        edges.append(1.0)
    else:
        edges = edges[: last + 1] + [1.0]
    pieces = {}
    for index, (left, right) in enumerate(zip(edges, edges[1:], strict=False)):
        left, right = max(left, low), min(right, high)
        if right > left:
            pieces[index] = (left, right)
    return pieces


def outcomes(
    run: Callable[[EnumeratingChance], Result],
    start: int,
    known: Known | None = None,
    *,
    share: bool = False,
    key: KeyFunction = round_key,
) -> Iterator[tuple[Outcome, Result]]:
    """Every way `run` can go when its round begins at committed length `start` and `known` keys are
    consumed already."""
    pending: list[tuple[int, ...]] = [()]
    while pending:
        script = pending.pop()
        chance = EnumeratingChance(start, script, dict(known or {}), share, key)
        result = run(chance)
        yield Outcome(chance.probability, chance.known, tuple(chance.choices)), result
        for turn in range(len(script), len(chance.taken)):
            pending.extend((*chance.taken[:turn], other) for other in chance.siblings[turn])
