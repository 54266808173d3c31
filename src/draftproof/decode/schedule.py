"""The draft length by batch size: vLLM's `num_speculative_tokens_per_batch_size`, [[first, last,
k], ...]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftproof.errors import UsageError

KEY = "num_speculative_tokens_per_batch_size"


@dataclass(frozen=True)
class BatchSchedule:
    """entries: (first, last, k): batches of `first` to `last` sequences draft k tokens each, from 1
    on without a gap."""

    entries: tuple[tuple[int, int, int], ...]

    @classmethod
    def parse(cls, value: Any) -> BatchSchedule:
        """From vLLM's form. UsageError: another form, a gap, an overlap, a start other than 1."""
        if isinstance(value, BatchSchedule):
            return value
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            raise UsageError(
                f"{KEY} is {value!r}; it is a list of [first, last, k], like [[1, 4, 5], "
                "[5, 16, 0]]"
            )
        due = 1
        for entry in value:
            if (
                not isinstance(entry, Sequence)
                or len(entry) != 3
                or not all(type(number) is int for number in entry)
            ):
                raise UsageError(
                    f"{KEY} has {entry!r}; an entry is [first batch size, last batch "
                    "size, draft length]"
                )
            first, last, length = entry
            if first != due or last < first:
                raise UsageError(
                    f"{KEY} has [{first}, {last}, {length}], where an entry from {due} on is due"
                )
            if length < 0:
                raise UsageError(f"{KEY} has draft length {length}; allowed: a whole number from 0")
            due = last + 1
        return cls(tuple((first, last, length) for first, last, length in value))

    def __call__(self, batch_size: int) -> int:
        """The draft length for a batch of `batch_size`; beyond the last entry its length goes
        on."""
        fitting = (length for first, last, length in self.entries if first <= batch_size <= last)
        return next(fitting, self.entries[-1][2])

    @property
    def longest(self) -> int:
        """The longest draft of any batch size."""
        return max(length for _, _, length in self.entries)
