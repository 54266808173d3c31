"""Checks of single values: each returns the value in its plain Python form or refuses it with one
sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from reprlib import repr as short
from typing import Any, NoReturn

from draftproof.errors import UsageError


def refuse(name: str, value: Any, allowed: str) -> NoReturn:
    """Raise the sentence every wrong value gets: the field, the value, what is allowed."""
    raise UsageError(f"{name} is {short(value)}; allowed: {allowed}")


def real(name: str, value: Any, allowed: str, test: Callable[[float], bool]) -> float:
    """A float for which `test` holds; NaN is never allowed, infinities only where `test` lets them
    through."""
    if isinstance(value, bool) or not isinstance(value, Real):
        refuse(name, value, allowed)
    try:
        number = float(value)
    except OverflowError:
        refuse(name, value, allowed)
    if math.isnan(number) or not test(number):
        refuse(name, value, allowed)
    return number


def integer(name: str, value: Any, allowed: str, low: int, high: int | None = None) -> int:
    """An int from `low` to `high` (both included; None: no upper end)."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        refuse(name, value, allowed)
    number = int(value)
    if number < low or (high is not None and number > high):
        refuse(name, value, allowed)
    return number


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        refuse(name, value, "True or False")
    return value


def items(name: str, value: Any, allowed: str) -> tuple[Any, ...]:
    """The members of a list-like value; None is the empty list, a string or mapping is none."""
    if value is None:
        return ()
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        refuse(name, value, allowed)
    try:
        return tuple(value)
    except TypeError:  # a 0-d array calls itself iterable
        refuse(name, value, allowed)


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """Token ids without repeats, in their order."""
    allowed = "a list of token ids (integers >= 0)"
    found = items(name, value, allowed)
    if any(isinstance(t, bool) or not isinstance(t, Integral) or t < 0 for t in found):
        refuse(name, value, allowed)
    return tuple(dict.fromkeys(int(t) for t in found))


def token_sequences(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    """Non-empty sequences of token ids."""
    allowed = "a list of non-empty lists of token ids (integers >= 0)"
    found = []
    for sequence in items(name, value, allowed):
        members = items(name, sequence, allowed)
        if not members or any(
            isinstance(t, bool) or not isinstance(t, Integral) or t < 0 for t in members
        ):
            refuse(name, value, allowed)
        found.append(tuple(int(t) for t in members))
    return tuple(dict.fromkeys(found))


def token_run(name: str, value: Any) -> tuple[int, ...]:
    """Token ids in their order, repeats included."""
    allowed = "a string, or a list of token ids (integers >= 0)"
    members = items(name, value, allowed)
    if any(isinstance(t, bool) or not isinstance(t, Integral) or t < 0 for t in members):
        refuse(name, value, allowed)
    return tuple(int(t) for t in members)


def strings(name: str, value: Any) -> tuple[str, ...]:
    """Non-empty strings without repeats."""
    allowed = "a list of non-empty strings"
    found = items(name, value, allowed)
    if any(not isinstance(text, str) or not text for text in found):
        refuse(name, value, allowed)
    return tuple(dict.fromkeys(found))


def callables(name: str, value: Any) -> tuple[Callable[..., Any], ...]:
    """Functions or objects that can be called."""
    allowed = "a list of callables (input_ids, scores) -> scores"
    found = items(name, value, allowed)
    if not all(callable(member) for member in found):
        refuse(name, value, allowed)
    return found


def biases(name: str, value: Any) -> dict[int, float]:
    """Token id -> bias, within what float32 holds, or -inf. Ids may be decimal strings, the only
    keys JSON has."""
    allowed = "a mapping from token id (integer >= 0) to a bias from -1e30 to 1e30, or -inf"
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        refuse(name, value, allowed)
    found: dict[int, float] = {}
    for key, bias in value.items():
        token = int(key) if isinstance(key, str) and key.isascii() and key.isdecimal() else key
        if (
            isinstance(token, bool)
            or not isinstance(token, Integral)
            or token < 0
            or int(token) in found
        ):
            refuse(name, value, allowed)
        found[int(token)] = real(
            f"{name}[{token}]",
            bias,
            "a number from -1e30 to 1e30, or -inf",
            lambda b: b <= 1e30 and (b >= -1e30 or b == -math.inf),
        )
    return found
