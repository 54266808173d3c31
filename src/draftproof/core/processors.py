"""Extra logits processors in Hugging Face's convention: (input_ids [1, n], scores [1, vocab]) ->
scores, as torch tensors.

Each row is processed by itself with its own history, because processors written for plain decoding
look at one sequence. Rows come in any order, rejected ones among them. A processor with a state of
its own (`Forked`) is copied for every row: the copy has been called for each token before it, as in
plain decoding, and for nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from array_api_compat import is_numpy_array

from draftproof.core.processor_state import Forked, fork, name_of
from draftproof.core.records import Array
from draftproof.errors import InvalidLogitsError, UsageError

Called = tuple[Callable[..., Any], ...]
"""Processors that have been called for every token up to some place."""


class Processors:
    """Runs `processors` in order; the committed ids are made into a tensor once a context.

    follows: the target's, for those of a drafter. States of committed tokens are then the target's,
    and what a processor raises is an InvalidLogitsError, which ends a draft: the text need not go
    there."""

    def __init__(self, processors: Sequence[Any], follows: Processors | None = None) -> None:
        self._processors = tuple(
            one.template if isinstance(one, Forked) else one for one in processors
        )
        self._forked = tuple(isinstance(one, Forked) for one in processors)
        self._follows = follows
        self._context: list[int] = []
        self._ids: Array = None
        self._base = self._processors
        self._after: dict[tuple[int, ...], Called] = {}

    def __bool__(self) -> bool:
        return bool(self._processors)

    def apply(self, x: Array, context: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Process the scores `x` [n, vocab] in place; row i has the history `context +
        paths[i]`."""
        # the convention's arrays; core itself knows no model library
        torch: Any = importlib.import_module("torch")
        numpy = is_numpy_array(x)
        scores = torch.from_numpy(x) if numpy else x
        self._move_to(context)
        committed = self._committed(torch, scores.device)
        for i, path in enumerate(paths):
            ids = torch.cat(
                [committed, torch.tensor(path, dtype=torch.int64, device=scores.device)]
            )[None, :]
            row = scores[i : i + 1]
            called = self._copies_for(path)
            for processor in called:
                row = self._checked(processor, self._call(processor, ids, row), scores.shape[-1])
            if any(self._forked):
                self._after[tuple(path)] = called
            scores[i] = row[0]

    def _call(self, processor: Any, ids: Array, row: Array) -> Any:
        if self._follows is None:
            return processor(ids, row)
        try:
            return processor(ids, row)
        except Exception as error:  # a caller's processor may raise anything
            raise InvalidLogitsError(
                f"the logits processor {name_of(processor)} raised {error!r}"
            ) from error

    def _move_to(self, context: Sequence[int]) -> None:
        """Let rows begin after `context`, which goes on from the last one along rows that were
        made."""
        if len(context) == len(self._context) and list(context) == self._context:
            return
        if any(self._forked) and self._follows is not None:
            self._follows._move_to(context)
            self._base = self._follows._base
        elif any(self._forked) and self._context:
            self._base = self._after[tuple(context[len(self._context) : -1])]
        self._context, self._ids, self._after = list(context), None, {}

    def _copies_for(self, path: Sequence[int]) -> Called:
        """The processors for the row after `path`, called for all before it."""
        if not any(self._forked):
            return self._processors
        before = self._after.get(tuple(path[:-1])) if path else self._base
        if before is None:
            raise InvalidLogitsError(
                "a logits processor with a state was not asked about the tokens before"
            )
        return tuple(
            fork(one) if forked else one for one, forked in zip(before, self._forked, strict=True)
        )

    def _committed(self, torch: Any, place: Any) -> Array:
        if self._ids is None or self._ids.device != place:
            self._ids = torch.tensor(self._context, dtype=torch.int64, device=place)
        return self._ids

    @staticmethod
    def _checked(processor: Any, row: Any, vocab_size: int) -> Any:
        shape = tuple(getattr(row, "shape", ()))
        if shape != (1, vocab_size):
            got = f"shape {list(shape)}" if shape else type(row).__name__
            raise UsageError(
                f"the logits processor {name_of(processor)} returned {got}; allowed: "
                f"scores of shape [1, {vocab_size}]"
            )
        return row
