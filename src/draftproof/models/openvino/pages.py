"""The pages of a model's sequences: who holds which, and the copies that make a shared page one's
own before it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from draftproof.models.openvino.graph import Attention
from draftproof.models.openvino.paged import PAGE

FIRST_PAGES = 32
BYTES = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.float16}
"""What an array holds entries of a precision in."""


class Pages:
    """Storage of all layers, as arrays [pages, heads, PAGE, width] that grow by doubling.

    arrays: by the name of the graph's input. moved: called when they lie elsewhere, with the new
    ones."""

    def __init__(
        self, layers: Sequence[Attention], dtype: str, moved: Callable[[dict[str, Any]], None]
    ) -> None:
        self._dtype, self._moved = BYTES[dtype], moved
        self._shapes = {
            f"keys.{i}": (one.heads, PAGE, one.key_width) for i, one in enumerate(layers)
        }
        self._shapes |= {
            f"values.{i}": (one.heads, PAGE, one.value_width) for i, one in enumerate(layers)
        }
        self.arrays: dict[str, Any] = {
            name: np.zeros((0, *shape), self._dtype) for name, shape in self._shapes.items()
        }
        self._free: list[int] = []
        self._holders: list[int] = []
        self._grow(FIRST_PAGES)

    @property
    def num_pages(self) -> int:
        return len(self._holders)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def page_bytes(self) -> int:
        """What one page takes in all layers."""
        return (
            sum(int(np.prod(shape)) for shape in self._shapes.values())
            * np.dtype(self._dtype).itemsize
        )

    def take(self) -> int:
        """A page that nobody else holds."""
        if not self._free:
            self._grow(2 * self.num_pages)
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def share(self, pages: Sequence[int]) -> list[int]:
        """The same pages for another holder."""
        for page in pages:
            self._holders[page] += 1
        return list(pages)

    def give_back(self, pages: Sequence[int]) -> None:
        for page in pages:
            self._holders[page] -= 1
            if self._holders[page] == 0:
                self._free.append(page)

    def own(self, pages: list[int], start: int, end: int) -> None:
        """Make `pages` hold the slots `start` to `end` of a sequence for it alone: new ones are
        taken, shared ones copied."""
        for number in range(start // PAGE, -(-end // PAGE)):
            if number == len(pages):
                pages.append(self.take())
            elif self._holders[pages[number]] > 1:
                mine = self.take()
                for array in self.arrays.values():
                    array[mine] = array[pages[number]]
                self.give_back([pages[number]])
                pages[number] = mine

    def _grow(self, count: int) -> None:
        before = self.num_pages
        for name, shape in self._shapes.items():
            larger = np.zeros((count, *shape), self._dtype)
            larger[:before] = self.arrays[name]
            self.arrays[name] = larger
        self._free += range(count - 1, before - 1, -1)
        self._holders += [0] * (count - before)
        self._moved(self.arrays)


class PagedCache:
    """One sequence's pages. `length`: tokens that count as read.

    A pass over a tree is read as its ways down, each a sequence of its own that shares the pages
    before it; `keep` then takes the pages of one way, and nothing is moved."""

    def __init__(self, pages: Pages) -> None:
        self.length = 0
        self.pages: list[int] = []
        self._store = pages
        self._ways: list[tuple[Sequence[int], list[int]]] = []

    def branch(self, pages: Sequence[int], start: int, end: int, way: Sequence[int]) -> list[int]:
        """Pages of a sequence of its own for the nodes `way` of a tree: `pages` up to slot `start`,
        new ones to `end`."""
        own = self._store.share(pages[: -(-start // PAGE)])
        self._ways.append((way, own))
        self._store.own(own, start, end)
        return own

    def reserve(self, start: int, end: int) -> list[int]:
        """This sequence's pages, with room of its own for the slots `start` to `end`."""
        self._store.own(self.pages, start, end)
        return self.pages

    def finish(self, length: int) -> None:
        """A pass has succeeded."""
        self.length = length

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Of the last pass, which began at `start`, keep the tokens at the indices `path`."""
        path = list(path)
        for way, own in self._ways:
            if path and list(way[: len(path)]) == path:
                self._store.give_back(self.pages)
                self.pages = self._store.share(own)
                break
        self.rollback(start + len(path))

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens, and the ways down a tree that were not kept."""
        self._forget_ways()
        needed = -(-length // PAGE)
        self._store.give_back(self.pages[needed:])
        del self.pages[needed:]
        self.length = length

    def fork(self) -> PagedCache:
        """Another sequence with the tokens of this one; a page is copied when one of them writes to
        it."""
        copy = PagedCache(self._store)
        copy.pages, copy.length = self._store.share(self.pages), self.length
        copy._ways = [(way, self._store.share(own)) for way, own in self._ways]
        return copy

    def drop(self) -> None:
        self._forget_ways()
        self._store.give_back(self.pages)
        self.pages, self.length = [], 0

    def __del__(self) -> None:
        self.drop()

    def _forget_ways(self) -> None:
        for _, own in self._ways:
            self._store.give_back(own)
        self._ways = []
