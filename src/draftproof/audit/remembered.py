"""What makes enumeration affordable: a law pipeline that remembers its rows.

The same row is processed thousands of times, and its law is a function of what is given, so
remembering leaves every probability as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace, is_numpy_array

from draftproof.core.pipeline import LawPipeline, Path
from draftproof.core.records import Array


class RememberedLaws(LawPipeline):
    """`LawPipeline`, every row computed once. The law of a row is a function of its logits, the
    context and its path, and the key holds all three, and whose array it is, so nothing is left out
    of the proof. NumPy rows are handed out read-only: nobody can change one that comes again."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._laws: dict[Any, tuple[Array, list[Array]]] = {}

    def law(self, logits: Array, context: Sequence[int], path: Path = ()) -> Array:
        key = (tuple(context), tuple(path), is_numpy_array(logits), _bytes(logits))
        if key not in self._laws:
            others, self._held = self._held, []
            made = super().laws(logits[None, :], context, (path,))[0, :]
            if is_numpy_array(made):
                made.setflags(write=False)
            self._laws[key], self._held = (made, self._held), others
        law, held = self._laws[key]
        self._held += held
        return law

    def laws(self, logits: Array, context: Sequence[int], paths: Sequence[Path]) -> Array:
        others, self._held = self._held, []
        rows = [self.law(logits[i], context, path) for i, path in enumerate(paths)]
        held = [array_namespace(logits).concat(self._held)] if self._held else []
        self._held = others + held
        return array_namespace(logits).stack(rows)


def _bytes(logits: Array) -> bytes:
    """The numbers of a row [vocab] as they lie in memory, whatever library holds them."""
    return (logits if is_numpy_array(logits) else logits.cpu().numpy()).tobytes()
