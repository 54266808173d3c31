"""Keys of `speculative_config` that only some methods read, their checks, and the keys that several
drafters share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.drafters.registry import Config, Parts


@dataclass(frozen=True)
class Option:
    """A key of `speculative_config` that only some methods read. check(name, value) gives the value
    to keep, or UsageError."""

    name: str
    default: Any
    check: Callable[[str, Any], Any]
    help: str
    vllm: bool = True
    """Whether vLLM has the key under this name."""


def count_from(least: int) -> Callable[[str, Any], int]:
    """A check: a whole number from `least`."""

    def check(name: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(f"{name} is {value!r}; allowed: a whole number from {least}")
        return value

    return check


def layer_numbers(name: str, value: Any) -> tuple[int, ...]:
    """A check: a list of different whole numbers from 0."""
    numbers = list(value) if isinstance(value, (list, tuple)) else [value]
    whole = all(
        isinstance(number, int) and not isinstance(number, bool) and number >= 0
        for number in numbers
    )
    if not whole or len(set(numbers)) < len(numbers):
        raise UsageError(
            f"{name} is {value!r}; allowed: a list of different layers, numbered from 0"
        )
    return tuple(numbers)


def one_of(*allowed: str, shown: str | None = None) -> Callable[[str, Any], str]:
    """A check: one of these words. shown: how the refusal lists them, where not as they are."""

    said = shown or ", ".join(sorted(allowed))

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise UsageError(f"{name} is {value!r}; allowed: {said}")
        return value

    return check


def one_to(most: int) -> Callable[[str, Any], int]:
    """A check: a whole number from 1 to `most`."""

    def check(name: str, value: Any) -> int:
        if count_from(1)(name, value) > most:
            raise UsageError(f"{name} is {value!r}; allowed: a whole number from 1 to {most}")
        return int(value)

    return check


def number_from(least: float, most: float = float("inf")) -> Callable[[str, Any], float]:
    """A check: a number from `least` to `most`."""

    def check(name: str, value: Any) -> float:
        if (
            not isinstance(value, (int, float))
            or isinstance(value, bool)
            or not least <= value <= most
            or math.isinf(value)
        ):
            allowed = f"a number from {least:g}" + ("" if math.isinf(most) else f" to {most:g}")
            raise UsageError(f"{name} is {value!r}; allowed: {allowed}")
        return float(value)

    return check


def yes_or_no(name: str, value: Any) -> bool:
    """A check: true or false."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {value!r}; allowed: true and false")
    return value


def store_of(kind: str) -> Callable[[str, Any], str]:
    """A check: the path of a store of this kind, read and found whole."""

    def check(name: str, value: Any) -> str:
        from draftproof.drafters.stores.files import read_store

        if not isinstance(value, str):
            raise UsageError(
                f"{name} is {value!r}; it is the path of a file of draftproof build-store"
            )
        return read_store(value, kind).path

    return check


def stored(config: Config, parts: Parts) -> Mapping[str, Any]:
    """The arrays of the method's store, once it is sure that they are whole and that the target has
    these tokens."""
    from draftproof.drafters.stores.files import check_fits, read_store

    store = read_store(config.option("store"), config.method)
    check_fits(store, parts.tokenizer, parts.target.vocab_size)
    return store.arrays


STORE_HELP = "path of a file of draftproof build-store"
DRAFT_SAMPLE_METHOD = Option(
    "draft_sample_method",
    "probabilistic",
    one_of("probabilistic", "greedy"),
    '"probabilistic" samples the draft, "greedy" takes its likeliest token',
)
