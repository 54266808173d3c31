"""What followed each n-gram, and how often: a table that grows with a text, and one built once from
a corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.drafters.stores.memory import digest_of

LONGEST = 4
"""Tokens of the longest n-gram, as in llama.cpp."""

Counts = Mapping[int, int]
Array = NDArray[Any]


class GrowingTable:
    """n-grams of 1 to LONGEST tokens of one text -> how often each token followed. One entry a
    length is added for a token."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._after: dict[tuple[int, ...], dict[int, int]] = {}

    def fork(self) -> GrowingTable:
        """A copy that grows on its own."""
        other = GrowingTable()
        other.tokens = list(self.tokens)
        other._after = {ngram: dict(counts) for ngram, counts in self._after.items()}
        return other

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens; each is counted after the n-grams before it."""
        text, first = self.tokens, len(self.tokens)
        text.extend(tokens)
        for end in range(first, len(text)):
            token = text[end]
            for begin in range(max(0, end - LONGEST), end):
                counts = self._after.setdefault(tuple(text[begin:end]), {})
                counts[token] = counts.pop(token, 0) + 1  # the latest goes to the end

    def counts(self, ngram: tuple[int, ...]) -> Counts:
        """token -> count, the one that followed last at the end; empty when the n-gram has not
        occurred before a token."""
        return self._after.get(ngram, {})


class StoredTable:
    """The same of a corpus, in flat arrays. An n-gram is found by a 64-bit hash: two that share one
    would only spoil a guess.

    For each length n: keys{n} [m] hashes, ascending; first{n} [m + 1], where their tokens begin;
    tokens{n}, counts{n}."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays

    @cached_property
    def digest(self) -> int:
        """64 bits that the tables of another corpus do not have."""
        return digest_of([self._arrays[name] for name in sorted(self._arrays)])

    def counts(self, ngram: tuple[int, ...]) -> Counts:
        """As `GrowingTable.counts`; in ascending order of count."""
        n = len(ngram)
        keys, first = self._arrays[f"keys{n}"], self._arrays[f"first{n}"]
        key = _hash_one(ngram)
        at = int(keys.searchsorted(np.uint64(key)))
        if at == len(keys) or int(keys[at]) != key:
            return {}
        begin, end = int(first[at]), int(first[at + 1])
        tokens, counts = (
            self._arrays[f"tokens{n}"][begin:end],
            self._arrays[f"counts{n}"][begin:end],
        )
        return dict(zip(tokens.tolist(), counts.tolist(), strict=True))


def build_tables(
    documents: Sequence[Array], *, least: int = 2, most_tokens: int = 16
) -> dict[str, Array]:
    """The arrays of a `StoredTable` over documents of token ids; nothing is counted across two of
    them.

    least: n-grams that were followed less often in all are left out. most_tokens: kept for one
    n-gram, the most frequent."""
    arrays: dict[str, Array] = {}
    for n in range(1, LONGEST + 1):
        windows = [
            np.lib.stride_tricks.sliding_window_view(d, n + 1) for d in documents if len(d) > n
        ]
        rows = np.concatenate(windows) if windows else np.zeros((0, n + 1), np.int64)
        keys = _hash(rows[:, :n])
        arrays |= {
            f"{name}{n}": array
            for name, array in _grouped(keys, rows[:, n], least, most_tokens).items()
        }
    return arrays


def _grouped(keys: Array, tokens: Array, least: int, most_tokens: int) -> dict[str, Array]:
    """Count equal (key, token) pairs and lay them out by key, in ascending order of count."""
    order = np.lexsort((tokens, keys))
    keys, tokens = keys[order], tokens[order]
    new = (
        np.flatnonzero(np.append(True, (keys[1:] != keys[:-1]) | (tokens[1:] != tokens[:-1])))
        if len(keys)
        else order
    )
    counts = np.diff(np.append(new, len(keys)))
    keys, tokens = keys[new], tokens[new]
    order = np.lexsort((counts, keys))
    keys, tokens, counts = keys[order], tokens[order], counts[order]
    unique, begin, sizes = np.unique(keys, return_index=True, return_counts=True)
    totals = np.add.reduceat(counts, begin) if len(counts) else counts
    # 1 for the most frequent token of a key
    rank = np.repeat(begin + sizes, sizes) - np.arange(len(keys))
    kept = np.repeat(totals >= least, sizes) & (rank <= most_tokens)
    kept_sizes = np.minimum(sizes, most_tokens)[totals >= least]
    return {
        "keys": unique[totals >= least].astype(np.uint64),
        "first": np.concatenate([[0], np.cumsum(kept_sizes)]).astype(np.int64),
        "tokens": tokens[kept].astype(np.int32),
        "counts": np.minimum(counts[kept], np.iinfo(np.int32).max).astype(np.int32),
    }


_MASK = (1 << 64) - 1
_STEP, _MIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9


def _hash_one(ngram: tuple[int, ...]) -> int:
    """`_hash` of one n-gram, in Python's integers: a NumPy call on four numbers would take
    longer."""
    key = 0
    for token in ngram:
        key = ((key ^ token) * _MIX + _STEP) & _MASK
        key ^= key >> 31
    return key


def _hash(rows: Array) -> Array:
    """A 64-bit hash of each row [m, n] of token ids."""
    keys = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        keys = (keys ^ column.astype(np.uint64)) * np.uint64(_MIX) + np.uint64(_STEP)
        keys ^= keys >> np.uint64(31)
    return keys
