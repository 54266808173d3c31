"""A suffix array over a corpus of token ids: where a stretch of tokens occurs, in logarithmic time.

Suffixes are sorted by their first SORTED tokens, by prefix doubling (Manber and Myers): enough for
every match and continuation that is asked for, and a constant number of sorts however long the
corpus.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.drafters.stores.memory import digest_of

SORTED = 64
END = 0xFFFFFFFF
"""Stands after every document. It is no token, sorts behind all, and nothing is read past it."""

Array = NDArray[Any]


class SuffixArray:
    """text [t]: documents of token ids, each followed by END, as big-endian uint32, so that bytes
    compare as tokens do. suffixes [t]: where suffixes begin, sorted."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.text, self.suffixes = arrays["text"], arrays["suffixes"]
        self._tokens = self.text.view(">u4")
        self._bytes, self._order = self.text.view(np.uint8).data, self.suffixes.data

    @cached_property
    def digest(self) -> int:
        """64 bits that another corpus does not have."""
        return digest_of([self.text])

    def longest_match(self, context: Sequence[int], most: int, least: int = 1) -> tuple[int, Array]:
        """(length, where it occurs) for the longest of the context's last `least` to `most` tokens
        that occur here; length 0 and no place when there is none. Occurrences come in the order of
        what follows them."""
        # a stretch of `low` occurs (or is not asked for)
        low, high = (
            least - 1,
            min(most, len(context), SORTED // 2),
        )
        places = self.suffixes[:0]
        length = 0
        while low < high:
            middle = (low + high + 1) // 2
            found = self.occurrences(context[-middle:])
            if len(found):
                low, length, places = middle, middle, found
            else:
                high = middle - 1
        return length, places

    def tokens(self, begins: Array, count: int) -> list[list[int]]:
        """The `count` entries of the text from each of `begins` on; END where a document ends and
        past the whole text."""
        # the last entry is an END
        places = np.minimum(begins[:, None] + np.arange(count), len(self._tokens) - 1)
        found: list[list[int]] = self._tokens[places].tolist()
        return found

    def occurrences(self, tokens: Sequence[int]) -> Array:
        """Where `tokens` (at most SORTED of them) occur."""
        wanted, width = np.asarray(tokens, ">u4").tobytes(), 4 * len(tokens)
        data, order = self._bytes, self._order

        def stretch(i: int) -> bytes:
            begin = 4 * order[i]
            return bytes(data[begin : begin + width])

        everywhere, total = range(len(order)), len(order)
        first = bisect_left(everywhere, wanted, key=stretch)
        if first == total or stretch(first) != wanted:
            return self.suffixes[:0]
        step = 1  # places are few as a rule: look for their end near by, not in the whole rest
        while first + step < total and stretch(first + step) == wanted:
            step *= 2
        near, far = first + step // 2, min(first + step, total)
        return self.suffixes[first : bisect_right(everywhere, wanted, lo=near, hi=far, key=stretch)]


def build_suffix_array(documents: Sequence[Array]) -> dict[str, Array]:
    """The arrays of a `SuffixArray` over documents of token ids."""
    ends = np.asarray([END], np.uint32)
    parts = [part for document in documents for part in (np.asarray(document, np.uint32), ends)]
    text = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
    rank = np.unique(text, return_inverse=True)[1].astype(np.int64)
    order, step = np.argsort(rank, kind="stable"), 1
    while step < SORTED and len(text):
        # past the end: smaller than all
        later = np.append(rank[step:], np.full(min(step, len(rank)), -1))
        key = rank * (len(text) + 1) + later + 1
        order = np.argsort(key, kind="stable")
        sorted_key = key[order]
        rank = np.empty_like(rank)
        rank[order] = np.cumsum(np.append(0, sorted_key[1:] != sorted_key[:-1]))
        step *= 2
    return {
        "text": text.astype(">u4").view(np.uint32),
        "suffixes": order.astype(np.int64 if len(text) >= 2**31 else np.int32),
    }
