"""Text as it comes, with `--show` each stretch by its origin: in colours on a terminal, in brackets
elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO

from draftproof.core.records import Origin

if TYPE_CHECKING:
    from draftproof.decode.result import Completion

STYLES: dict[Origin, str] = {
    "draft": "green",
    "replacement": "bold red",
    "bonus": "bold blue",
    "plain": "dim",
}
BRACKETS: dict[Origin, tuple[str, str]] = {
    "draft": ("[", "]"),
    "replacement": ("<", ">"),
    "bonus": ("(", ")"),
    "plain": ("", ""),
}
MEANING: dict[Origin, str] = {
    "draft": "accepted draft",
    "replacement": "replacement after a rejection",
    "bonus": "bonus",
    "plain": "plain",
}


class Writer:
    """Writes pieces to `out` (default: standard output) as they come. origins: tell them apart,
    with a legend first."""

    def __init__(self, *, origins: bool, out: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._origins, self._colours = origins, origins and _has_colours(self._out)
        self._sample = 0
        self._at_line_start = True
        if origins:
            self._legend()

    def piece(self, text: str, origin: Origin, index: int = 0) -> None:
        """One stretch of sample `index`."""
        if index != self._sample:
            self.line_end()
            self._write(f"\n[sample {index + 1}]\n")
            self._sample = index
        if text:
            self._write(self._marked(text, origin) if self._origins else text)
            self._at_line_start = text.endswith("\n")

    def line_end(self) -> None:
        """End the line if one was begun."""
        if not self._at_line_start:
            self._write("\n")
            self._at_line_start = True

    def _legend(self) -> None:
        self._write(
            "  ".join(self._marked(meaning, origin) for origin, meaning in MEANING.items()) + "\n\n"
        )

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def _marked(self, text: str, origin: Origin) -> str:
        if not self._colours:
            opening, closing = BRACKETS[origin]
            return f"{opening}{text}{closing}"
        from rich.color import ColorSystem
        from rich.style import Style

        return Style.parse(STYLES[origin]).render(text, color_system=ColorSystem.STANDARD)


def _has_colours(out: TextIO) -> bool:
    """Whether `out` is a terminal that shows colours; NO_COLOR, FORCE_COLOR and TERM are heeded."""
    from rich.console import Console

    return Console(file=out).color_system is not None


def stretches(
    output: Completion, tokenizer: Any, skip_special_tokens: bool
) -> Iterator[tuple[str, Origin]]:
    """The text of a finished sample in stretches of one origin; joined, they are the text."""
    from draftproof.decode.text import Detokenizer

    detokenizer, written = Detokenizer(tokenizer, skip_special_tokens=skip_special_tokens), 0
    for origin, group in groupby(
        zip(output.origins, output.token_ids, strict=True), key=lambda pair: pair[0]
    ):
        for _, token in group:
            detokenizer.push(token)
        end = min(len(detokenizer.text), len(output.text))
        yield output.text[written:end], origin
        written = max(written, end)
    if written < len(output.text):
        yield output.text[written:], output.origins[-1]
