"""Penalties on tokens that occurred: repetition (Keskar et al., 1909.05858), presence and frequency
(OpenAI API, vLLM).

Every row has its own history, the committed context and the drafted path before it. The context's
share is applied to all rows at once from incremental counts; the few tokens of each path are
corrected after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace

from draftproof.core.history import History, index
from draftproof.core.params import SamplingParams
from draftproof.core.records import Array

Paths = Sequence[Sequence[int]]


class Penalties:
    """The penalties of `params` over `history`."""

    def __init__(self, params: SamplingParams, num_prompt_tokens: int, vocab_size: int) -> None:
        self._repetition = params.repetition_penalty
        self._presence, self._frequency = params.presence_penalty, params.frequency_penalty
        self._history = History(num_prompt_tokens, vocab_size)
        self._vocab_size = vocab_size
        self.active = self._repetition != 1 or self._presence != 0 or self._frequency != 0

    def apply(self, x: Array, context: Sequence[int], paths: Paths) -> None:
        """Penalise the logits `x` [n, vocab] in place; row i has the history `context +
        paths[i]`."""
        self._history.sync(context)
        if self._repetition != 1:
            self._repeat(x, paths)
        if self._presence != 0 or self._frequency != 0:
            self._count(x, paths)

    def _repeat(self, x: Array, paths: Paths) -> None:
        seen = self._history.seen
        if seen:
            ids = self._history.seen_ids(x)
            x[:, ids] = self._repeated(x[:, ids])
        new = [
            (i, t)
            for i, path in enumerate(paths)
            for t in set(path)
            if t not in seen and t < self._vocab_size
        ]
        if new:
            rows, columns = (index(x, side) for side in zip(*new, strict=True))
            x[rows, columns] = self._repeated(x[rows, columns])

    def _repeated(self, scores: Array) -> Array:
        xp = array_namespace(scores)
        return xp.where(scores < 0, scores * self._repetition, scores / self._repetition)

    def _count(self, x: Array, paths: Paths) -> None:
        xp = array_namespace(x)
        generated = self._history.generated
        drafted = [
            (i, t, generated.get(t, 0) + path.count(t))
            for i, path in enumerate(paths)
            for t in set(path)
            if t < self._vocab_size
        ]
        if drafted:
            row_list, column_list, count_list = zip(*drafted, strict=True)
            rows, columns = index(x, row_list), index(x, column_list)
            counts = xp.astype(index(x, count_list), x.dtype)
            before = x[rows, columns]
        if generated:
            ids = self._history.generated_ids(x)
            x[:, ids] = self._counted(x[:, ids], self._history.generated_counts(x))
        if drafted:
            x[rows, columns] = self._counted(before, counts)

    def _counted(self, scores: Array, counts: Array) -> Array:
        return scores - self._frequency * counts - self._presence
