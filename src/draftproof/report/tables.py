"""A `Result` on the terminal, within 80 columns."""

from __future__ import annotations

import json
import math
from typing import Any

from draftproof.report.result import Result


def print_result(result: Result) -> None:
    """Title, table and notes on standard output."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in result.columns:
        words = any(isinstance(row.get(column.key), str) for row in result.rows)
        table.add_column(column.heading, justify="left" if words else "right", vertical="bottom")
    for row in result.rows:
        table.add_row(*(Text(column.text(row.get(column.key))) for column in result.columns))
    console = Console(highlight=False)
    console.print(result.title, style="bold", markup=False)
    console.print(table)
    for note in result.notes:
        console.print(f"- {note}", markup=False)


def json_line(document: object) -> str:
    """`document` as one line of strict JSON; a number that is not finite becomes null."""
    return json.dumps(_finite(document), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float):  # NumPy's doubles are floats
        return float(value) if math.isfinite(value) else None
    return value
