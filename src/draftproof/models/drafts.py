"""Draft models by name, each loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from draftproof.models.protocol import LanguageModel

Key = tuple[str, str | None, str | None]


class DraftModels:
    """Called with a name, a revision and a quantization, gives the model. loaded: (name, revision,
    quantization) -> model.

    waiting: what to enter while a model loads, given a sentence about it. how: of every load, see
    `draftproof.models.engine.load_engine`."""

    def __init__(
        self, *, waiting: Callable[[str], AbstractContextManager[Any]] = nullcontext, **how: Any
    ) -> None:
        self._waiting, self._how = waiting, how
        self.loaded: dict[Key, LanguageModel] = {}

    def __call__(
        self, name: str, revision: str | None = None, quantization: str | None = None
    ) -> LanguageModel:
        from draftproof.models.engine import load_engine

        key = name, revision, quantization
        if key not in self.loaded:
            with self._waiting(f"loading {name}"):
                self.loaded[key] = load_engine(
                    name, revision=revision, quantization=quantization, **self._how
                )
        return self.loaded[key]
