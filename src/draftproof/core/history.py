"""The committed tokens of one request and how often each occurs, kept up to date by difference.

A context normally grows at its end; then only the new tokens are counted. Any other context is
right too: tokens are taken back to the common prefix and the rest is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from array_api_compat import array_namespace, device

from draftproof.core.records import Array


class History:
    """seen: count of every token of the context. generated: the same of the tokens after the
    prompt.

    Ids of `vocab_size` and above (a prompt may hold ids the output layer has no row for) are left
    out."""

    def __init__(self, num_prompt_tokens: int, vocab_size: int) -> None:
        self._num_prompt_tokens, self._vocab_size = num_prompt_tokens, vocab_size
        self._tokens: list[int] = []
        self.seen: dict[int, int] = {}
        self.generated: dict[int, int] = {}
        self._arrays = ArrayCache()

    def sync(self, context: Sequence[int]) -> None:
        """Bring the counts to `context`."""
        tokens = self._tokens
        shared = len(tokens)
        if list(context[:shared]) != tokens:
            shared = common_prefix(tokens, context)
        if shared == len(tokens) == len(context):
            return
        while len(tokens) > shared:
            self._count(len(tokens) - 1, tokens.pop(), -1)
        for token in context[shared:]:
            self._count(len(tokens), token, 1)
            tokens.append(token)
        self._arrays = ArrayCache()

    def seen_ids(self, x: Array) -> Array:
        """The distinct tokens of the context, int64, beside `x`."""
        return self._arrays.get("seen", x, lambda: list(self.seen))

    def generated_ids(self, x: Array) -> Array:
        """The distinct generated tokens, int64, beside `x`."""
        return self._arrays.get("generated", x, lambda: list(self.generated))

    def generated_counts(self, x: Array) -> Array:
        """How often each of `generated_ids` occurs, in the dtype of `x`."""
        return self._arrays.get("counts", x, lambda: list(self.generated.values()), x.dtype)

    def _count(self, position: int, token: int, step: int) -> None:
        if token >= self._vocab_size:
            return
        for counts in (
            (self.seen, self.generated) if position >= self._num_prompt_tokens else (self.seen,)
        ):
            counts[token] = counts.get(token, 0) + step
            if not counts[token]:
                del counts[token]


class ArrayCache:
    """Small constant arrays, made once for each library, device and dtype that asks."""

    def __init__(self) -> None:
        self._made: dict[Any, Array] = {}

    def get(self, name: str, x: Array, values: Callable[[], list[Any]], dtype: Any = None) -> Array:
        """`values()` as an array of `dtype` (None: int64) in the library and on the device of
        `x`."""
        xp = array_namespace(x)
        dtype = xp.int64 if dtype is None else dtype
        key = (name, xp, device(x), dtype)
        if key not in self._made:
            self._made[key] = xp.asarray(values(), dtype=dtype, device=device(x))
        return self._made[key]


def index(x: Array, values: Sequence[int]) -> Array:
    """`values` as an int64 index array beside `x`."""
    xp = array_namespace(x)
    return xp.asarray(values, dtype=xp.int64, device=device(x))


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
