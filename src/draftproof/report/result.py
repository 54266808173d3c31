"""What an experiment or a simulation hands back: a table for people, numbers for machines, a
function that draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_NAME = 22
"""Characters of a drafter in a table of 80 columns."""


def short_name(name: str) -> str:
    """Of a draft model its own name, of a path the last part; of a long name the beginning and the
    end."""
    name = " ".join(
        word.rsplit("/", 1)[-1] if word.count("/") > 1 else word for word in name.split(" ")
    )
    name = name.removeprefix("draft_model ").removesuffix(".gguf")
    return name if len(name) <= LONGEST_NAME else f"{name[:8]}...{name[11 - LONGEST_NAME :]}"


@dataclass(frozen=True)
class Column:
    """heading: as printed, line breaks allowed. key: in JSON. format: a format specification for
    numbers."""

    heading: str
    key: str
    format: str = ""

    def text(self, value: object) -> str:
        """`value` as a cell; a missing one is empty."""
        return (
            ""
            if value is None
            else format(value, self.format if not isinstance(value, str) else "")
        )


@dataclass(frozen=True)
class Result:
    """title: what was asked. notes: what the numbers say, one sentence each. rows: one mapping a
    line, keyed as `columns`.

    data: everything else worth having in JSON. draw: puts the figure on an empty matplotlib
    Figure."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    draw: Callable[[Figure], None]
    data: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "name": self.name,
            "title": self.title,
            "rows": [dict(row) for row in self.rows],
            "notes": list(self.notes),
            **self.data,
        }
