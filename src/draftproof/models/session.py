"""One sequence read by a model with a cache: its tokens, and a cache that may lag behind them after
a rollback.

Where frequencies switch at a length, both sides of the switch have a cache, and the one that is not
in use lags."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from draftproof.errors import UsageError
from draftproof.models.layout import is_chain
from draftproof.models.protocol import LanguageModel, Session
from draftproof.models.rotation import NEAR, Sides


class CachingModel(LanguageModel):
    """A model whose sessions keep their text in a cache of its own kind, moved as `KeyValueCache`
    is."""

    @abstractmethod
    def new_cache(self) -> Any:
        """What a session keeps of its text."""


class HFSession(Session):
    """`length` counts the tokens read. Those a rollback could not restore are read again by the
    next pass (`unread`)."""

    can_fork = True

    def __init__(self, model: CachingModel) -> None:
        self.model = model
        self._model = model
        self._far = False
        self._caches: dict[bool, Any] = {self._far: model.new_cache()}
        self._tokens: list[int] = []
        self._last_parents: Sequence[int] | None = None
        self._last_start = 0
        self._after_tree = False

    @property
    def length(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> Sequence[int]:
        return self._tokens

    @property
    def unread(self) -> Sequence[int]:
        """Tokens that count as read, but have to be read again before the next pass."""
        return self._tokens[self.cache.length :]

    @property
    def cache(self) -> Any:
        """The keys, values and states on the side of the last pass; UsageError once closed."""
        if not self._caches:
            raise UsageError("this session is closed")
        return self._caches[self._far]

    def turn(self, far: bool) -> None:
        """Read on this side of the model's switch from now on."""
        if far not in self._caches:
            self._caches[far] = self._model.new_cache()
        self._far = far

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens; UsageError when fewer were read, or when it
        would cut through a tree."""
        if not 0 <= length <= self.length:
            raise UsageError(
                f"cannot roll back to {length} tokens: the session holds {self.length}"
            )
        if self._after_tree and length > self._last_start:
            raise UsageError(
                f"a tree was read after {self._last_start} tokens: use keep() to choose "
                "a path of it"
            )
        for cache in self._require_open():
            cache.rollback(length)
        del self._tokens[length:]
        self._last_parents, self._after_tree = None, False

    def keep(self, path: Sequence[int]) -> None:
        """Keep the tokens of the last `extend` at the indices `path`, a way down from the context;
        forget its others."""
        if self._last_parents is None:
            raise UsageError(
                "keep() follows an extend(); nothing was read since the last keep() or rollback()"
            )
        above = -1
        for node in path:
            if not 0 <= node < len(self._last_parents) or self._last_parents[node] != above:
                raise UsageError(
                    f"keep({list(path)}) is not a way down what was just read: {node} "
                    f"does not follow {above}"
                )
            above = node
        start = self._last_start
        for cache in self._require_open():
            # the other side, where there is one, may not have read this pass
            if cache.length == self.length:
                cache.keep(start, path)
        self._tokens[start:] = [self._tokens[start + node] for node in path]
        self._last_parents, self._after_tree = None, False

    def fork(self, length: int | None = None) -> HFSession:
        """As `Session.fork`. UsageError, too, for a length that cuts through a tree which waits for
        `keep`."""
        self._require_open()
        if length is not None and not 0 <= length <= self.length:
            raise UsageError(f"cannot fork at {length} tokens: the session holds {self.length}")
        copy = HFSession(self._model)
        copy._caches = {far: cache.fork() for far, cache in self._caches.items()}
        copy._far, copy._tokens = self._far, list(self._tokens)
        copy._last_parents, copy._last_start = self._last_parents, self._last_start
        copy._after_tree = self._after_tree
        if length is not None:
            copy.rollback(length)
        return copy

    def close(self) -> None:
        for cache in self._caches.values():
            cache.drop()
        self._caches = {}
        self._tokens, self._last_parents, self._after_tree = [], None, False

    def require_ready(self) -> None:
        """UsageError when closed, or when a tree still waits for keep() or rollback()."""
        if self._after_tree:
            raise UsageError(
                "a tree was read: choose what stays with keep() or rollback() before reading on"
            )
        self._require_open()

    def _require_open(self) -> list[Any]:
        """Every cache there is; UsageError when closed."""
        if not self._caches:
            raise UsageError("this session is closed")
        return list(self._caches.values())

    def note_read(
        self, tokens: Sequence[int], parents: Sequence[int] | None, sides: Sides = NEAR
    ) -> None:
        """Passes over `tokens`, one on each of these sides, have succeeded: they count as read.
        What lies beyond the switch will not be read on the near side again."""
        self._last_start = self.length
        self._last_parents = parents if parents is not None else range(-1, len(tokens) - 1)
        self._after_tree = not is_chain(parents)
        self._tokens.extend(int(token) for token in tokens)
        for far in sides:
            self._caches[far].finish(self.length)
        if False not in sides and False in self._caches:
            self._caches.pop(False).drop()

    def recover(self) -> None:
        """A pass has failed: go back to what was there before it, as far as the cache can."""
        for cache in self._caches.values():
            cache.rollback(self.length)
