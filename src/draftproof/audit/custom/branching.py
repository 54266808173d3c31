"""A generator with the methods of `numpy.random.Generator` that follows one outcome at a time.

`branches(run)` runs a function once for every way its chance can go: choices are followed by their
index, uniform numbers by the comparisons they enter (`uniform.py`), and what was not taken is taken
later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from draftproof.audit.custom.uniform import BranchingUniform, refuse
from draftproof.errors import UsageError

Result = TypeVar("Result")
ELSEWHERE = (
    "the function does not repeat itself when its chance does: all randomness must come "
    "from the rng it is given, "
    "and nothing may be kept between calls"
)
LEAST = 2.0**-52
"""Intervals no longer than this are no outcomes: two values of a real generator, or what rounding
left of a law's sum."""


@dataclass(frozen=True)
class Branch:
    """One choice on a path: in words, and its probability."""

    said: str
    probability: float


@dataclass
class BranchingGenerator:
    """Follows `script` (indices of outcomes), then the first possible outcome at every further
    choice, noting the others."""

    script: tuple[int, ...] = ()
    taken: list[int] = field(default_factory=list)
    others: list[tuple[int, ...]] = field(default_factory=list)
    path: list[Branch] = field(default_factory=list)
    probability: float = 1.0
    _known: list[tuple[float, float]] = field(default_factory=list)

    def random(self, size: Any = None) -> Any:
        """A uniform number in [0, 1) that only comparisons decide, or an array [size] of them."""
        return self._shaped(size, self._uniform)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
        return self._shaped(size, lambda: self._uniform() * (high - low) + low)

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, **ignored: Any
    ) -> Any:
        """As NumPy's: an index below `a` or an entry of it, by the law `p` or evenly."""
        items = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        weights = np.full(len(items), 1.0 / len(items)) if p is None else np.array(p, dtype=float)
        if len(weights) != len(items):
            raise ValueError("'a' and 'p' must have same size")

        def one() -> Any:
            index = self._choose("choice", weights)
            if not replace:
                weights[index] = 0.0
            return items[index]

        return self._shaped(size, one, items.dtype)

    def integers(
        self,
        low: int,
        high: int | None = None,
        size: Any = None,
        endpoint: bool = False,
        **ignored: Any,
    ) -> Any:
        first, last = (0, low) if high is None else (low, high)
        values = np.arange(first, last + endpoint)
        return self.choice(values, size)

    def multinomial(self, n: int, pvals: Any, size: Any = None) -> Any:
        """Counts [len(pvals)] of n draws."""
        if size is not None:
            refuse("asks multinomial for several samples at once")
        drawn = [self._choose("multinomial", np.asarray(pvals, dtype=float)) for _ in range(n)]
        return np.bincount(drawn, minlength=len(pvals))

    def binomial(self, n: int, p: float, size: Any = None) -> Any:
        return self._shaped(
            size,
            lambda: sum(self._choose("binomial", np.array([1.0 - p, p])) for _ in range(n)),
            int,
        )

    def permutation(self, x: Any) -> Any:
        items = np.arange(x) if np.ndim(x) == 0 else np.asarray(x)
        return self.choice(items, len(items), replace=False)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(np.random.Generator, name):
            refuse(f"calls rng.{name}()")
        raise AttributeError(f"a generator has no {name!r}")

    def below(self, which: int, threshold: float, said: str) -> bool:
        """Whether uniform number `which` is below `threshold`, given what is known of it."""
        low, high = self._known[which]
        if threshold - low <= LEAST or high - threshold <= LEAST:
            return threshold - low > LEAST
        share = (threshold - low) / (high - low)
        below = self._follow((share, 1.0 - share), lambda index: f"{said} is {index == 0}") == 0
        self._known[which] = (low, threshold) if below else (threshold, high)
        return below

    def _uniform(self) -> BranchingUniform:
        self._known.append((0.0, 1.0))
        return BranchingUniform(self, len(self._known) - 1)

    def _choose(self, name: str, weights: Any) -> int:
        total = float(weights.sum())
        if not (np.all(weights >= 0) and 0 < total < np.inf):
            raise ValueError(f"rng.{name} was given weights {weights.tolist()}, which are no law")
        shares = tuple((weights / total).tolist())
        return self._follow(
            shares, lambda index: f"{name}({[round(share, 6) for share in shares]}) gives {index}"
        )

    def _follow(self, shares: Sequence[float], say: Callable[[int], str]) -> int:
        """Take the scripted outcome, or the first possible one."""
        possible = [index for index, share in enumerate(shares) if share > 0]
        turn = len(self.taken)
        index = self.script[turn] if turn < len(self.script) else possible[0]
        if index not in possible:
            raise UsageError(ELSEWHERE)
        self.others.append(
            tuple(other for other in possible if other > index) if turn >= len(self.script) else ()
        )
        self.path.append(Branch(say(index), shares[index]))
        self.probability *= shares[index]
        self.taken.append(index)
        return index

    @staticmethod
    def _shaped(size: Any, one: Callable[[], Any], dtype: Any = object) -> Any:
        if size is None:
            return one()
        array = np.empty(size, dtype=dtype)
        for place in np.ndindex(array.shape):
            array[place] = one()
        return array


def branches(
    run: Callable[[BranchingGenerator], Result],
) -> Iterator[tuple[float, Result, tuple[Branch, ...]]]:
    """(probability, result, choices) of every way `run` can go. UsageError when it does not repeat
    itself."""
    pending: list[tuple[int, ...]] = [()]
    while pending:
        script = pending.pop()
        rng = BranchingGenerator(script)
        result = run(rng)
        if len(rng.taken) < len(script):
            raise UsageError(ELSEWHERE)
        yield rng.probability, result, tuple(rng.path)
        for turn in range(len(script), len(rng.taken)):
            pending.extend((*rng.taken[:turn], other) for other in rng.others[turn])
