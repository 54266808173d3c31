"""Any function from prompt ids and a seed to the ids of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from draftproof.audit.black_box.samples import Ids
from draftproof.audit.named import object_named
from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError


class CallableEngine:
    """function: (prompt ids, seed) -> ids of the text alone. It samples as it likes: the parameters
    of the audit say what it claims to do, and are not handed to it."""

    def __init__(
        self, function: Callable[[Ids, int], Sequence[int]], name: str | None = None
    ) -> None:
        if not callable(function):
            raise UsageError(
                f"an engine is a function of prompt ids and a seed, not a {type(function).__name__}"
            )
        self._function = function
        self.name = name or str(getattr(function, "__qualname__", type(function).__name__))

    @classmethod
    def named(cls, place: str) -> CallableEngine:
        """By `package.module:function` or `file.py:function`. UsageError when there is none."""
        return cls(object_named(place), place)

    def sample(self, prompt: Ids, params: SamplingParams, seed: int) -> Ids:
        """UsageError for a function that raises, and for an answer that is no list of ids, or
        longer than max_tokens."""
        try:
            answer = self._function(prompt, seed)
        except Exception as error:  # the caller's function may raise anything
            raise UsageError(
                f"{self.name} raised {type(error).__name__} on a prompt of {len(prompt)} "
                f"tokens: {error}"
            ) from error
        try:
            ids = tuple(int(token) for token in answer)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{self.name} returned {type(answer).__name__}, no list of token ids: {error}"
            ) from error
        if params.max_tokens is not None and len(ids) > params.max_tokens:
            raise UsageError(
                f"{self.name} returned {len(ids)} tokens, and max_tokens is {params.max_tokens}"
            )
        return ids
