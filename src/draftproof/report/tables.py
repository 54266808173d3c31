"""A `Result` on the terminal, within 80 columns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

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


def json_line(document: object, *, ascii_only: bool = True) -> str:
    """`document` as one line of strict JSON: NumPy's numbers are numbers, and one that is not
    finite becomes null."""
    return json.dumps(_plain(document), allow_nan=False, ensure_ascii=ascii_only)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
