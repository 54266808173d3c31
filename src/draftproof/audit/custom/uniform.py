"""A uniform number of which only what was asked is decided: each comparison with a number cuts its
interval in two.

What is known of the number is an interval of [0, 1). `u < 0.3` splits it at 0.3, and the two parts
are two outcomes with their lengths as probabilities. Sums, products and logarithms of the number
with plain numbers are followed by turning the threshold back into one of the number itself, so any
function that in the end only compares is enumerated exactly. What needs the number itself is
refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NoReturn, Protocol

import numpy as np

from draftproof.errors import UsageError


class Source(Protocol):
    """Who decides: whether uniform number `which` is below `threshold`; `said` is the comparison in
    words."""

    def below(self, which: int, threshold: float, said: str) -> bool: ...


class BranchingUniform:
    """A monotone expression of one uniform number. back: from a value of the expression to that of
    the number; rising: whether the expression grows with the number; said: the expression in
    words."""

    __slots__ = ("_source", "_which", "_back", "_rising", "_said")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        source: Source,
        which: int,
        back: Callable[[float], float] = lambda value: value,
        rising: bool = True,
        said: str = "random()",
    ) -> None:
        self._source, self._which, self._back, self._rising = source, which, back, rising
        self._said = said

    def __lt__(self, other: Any) -> bool:
        bound = self._number(other)
        threshold = self._back(bound)
        below = self._source.below(
            self._which, threshold, f"{self._said} {'<' if self._rising else '>='} {bound:.6g}"
        )
        return below if self._rising else not below

    def __ge__(self, other: Any) -> bool:
        return not self < other

    __le__, __gt__ = __lt__, __ge__  # equality has probability zero

    def __eq__(self, other: Any) -> bool:
        self._number(other)
        return False

    def __bool__(self) -> bool:
        return True

    def __add__(self, other: Any) -> Any:
        shift = self._number(other)
        return self._map(lambda value: value - shift, True, f"({self._said} + {shift:.6g})")

    def __mul__(self, other: Any) -> Any:
        factor = self._number(other)
        if factor == 0:
            return 0.0
        return self._map(lambda value: value / factor, factor > 0, f"{factor:.6g} * {self._said}")

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1.0

    def __sub__(self, other: Any) -> Any:
        return self + -self._number(other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __truediv__(self, other: Any) -> Any:
        return self * (1.0 / self._number(other))

    def log(self) -> Any:
        """Called by `np.log`; of the number itself or of a positive multiple of it."""
        return self._map(lambda value: math.exp(min(value, 700.0)), True, f"log({self._said})")

    def __float__(self) -> NoReturn:
        refuse("turns a uniform number into a float")

    def __int__(self) -> NoReturn:
        refuse("turns a uniform number into an integer")

    __index__ = __int__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions, element by element, by the operators above."""
        if method != "__call__" or options.get("out") is not None:
            refuse(f"hands a uniform number to numpy.{ufunc.__name__}.{method}")
        arrays = [as_objects(one) for one in inputs]
        try:
            return ufunc(*arrays, **options)
        except TypeError as error:
            raise cannot_follow(f"hands a uniform number to numpy.{ufunc.__name__}") from error

    def __array_function__(
        self, function: Any, types: Any, args: Sequence[Any], options: Any
    ) -> Any:
        if function is np.searchsorted and args[1] is self:
            return next((index for index, edge in enumerate(args[0]) if self < edge), len(args[0]))
        refuse(f"hands a uniform number to numpy.{function.__name__}")

    def _map(self, back: Callable[[float], float], rising: bool, said: str) -> BranchingUniform:
        before = self._back
        return BranchingUniform(
            self._source,
            self._which,
            lambda value: before(back(value)),
            self._rising == rising,
            said,
        )

    @staticmethod
    def _number(other: Any) -> float:
        if isinstance(other, BranchingUniform):
            refuse("compares two uniform numbers with each other")
        if not isinstance(other, (Real, np.number)) and getattr(other, "shape", None) != ():
            raise TypeError(f"a uniform number and a {type(other).__name__} do not go together")
        return float(other)


def as_objects(value: Any) -> Any:
    """A value as an array of Python objects, on which NumPy falls back to Python's operators."""
    if not isinstance(value, BranchingUniform):
        # Python's own floats, whose operators know nothing of NumPy
        return np.asarray(value).astype(object)
    array = np.empty((), dtype=object)
    array[()] = value
    return array


def cannot_follow(what: str) -> UsageError:
    """The error for chance that cannot be enumerated."""
    return UsageError(
        f"the function {what}, so its outcomes cannot be listed; "
        "compare rng.random() with numbers, or draw with rng.choice(n, p=law)"
    )


def refuse(what: str) -> NoReturn:
    """Raise it."""
    raise cannot_follow(what)
