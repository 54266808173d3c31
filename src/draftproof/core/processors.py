"""Extra logits processors in Hugging Face's convention: (input_ids [1, n], scores [1, vocab]) -> scores, as torch tensors.

Each row is processed by itself with its own history, because processors written for plain decoding look at one sequence.
A processor must be a function of its two arguments: rows come in any order, rejected ones among them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from array_api_compat import is_numpy_array

from draftproof.core.records import Array
from draftproof.errors import UsageError


class Processors:
    """Runs `processors` in order; the committed ids are made into a tensor once a context."""

    def __init__(self, processors: Sequence[Callable[..., Any]]) -> None:
        self._processors = tuple(processors)
        self._context: list[int] = []
        self._ids: Array = None

    def __bool__(self) -> bool:
        return bool(self._processors)

    def apply(self, x: Array, context: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Process the scores `x` [n, vocab] in place; row i has the history `context + paths[i]`."""
        torch: Any = importlib.import_module("torch")  # the convention's arrays; core itself knows no model library
        numpy = is_numpy_array(x)
        scores = torch.from_numpy(x) if numpy else x
        committed = self._committed(torch, scores.device, context)
        for i, path in enumerate(paths):
            ids = torch.cat([committed, torch.tensor(path, dtype=torch.int64, device=scores.device)])[None, :]
            row = scores[i : i + 1]
            for processor in self._processors:
                row = self._checked(processor, processor(ids, row), scores.shape[-1])
            scores[i] = row[0]

    def _committed(self, torch: Any, place: Any, context: Sequence[int]) -> Array:
        if self._ids is None or self._ids.device != place or list(context) != self._context:
            self._context = list(context)
            self._ids = torch.tensor(self._context, dtype=torch.int64, device=place)
        return self._ids

    @staticmethod
    def _checked(processor: Any, row: Any, vocab_size: int) -> Any:
        shape = tuple(getattr(row, "shape", ()))
        if shape != (1, vocab_size):
            name = getattr(processor, "__name__", type(processor).__name__)
            got = f"shape {list(shape)}" if shape else type(row).__name__
            raise UsageError(f"the logits processor {name} returned {got}; allowed: scores of shape [1, {vocab_size}]")
        return row
