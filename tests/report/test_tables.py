"""Tables and the JSON line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from draftproof.report.result import Column, Result
from draftproof.report.tables import json_line, print_result


def test_a_table_shows_formats_words_and_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("name", "name"), Column("value", "value", ".2f"))
    rows = [
        {"name": "[bold]one", "value": 1.234},
        {"name": "two", "value": None},
        {"name": "three"},
    ]
    print_result(Result("t", "Some title", columns, rows, ("A note.",), lambda figure: None))
    out = capsys.readouterr().out
    assert (
        "Some title" in out
        and "1.23" in out
        and "1.234" not in out
        and "- A note." in out
        and "three" in out
        and "[bold]one" in out
    )


def test_json_is_strict_and_on_one_line() -> None:
    line = json_line(
        {"a": [float("nan"), float("inf"), 1.5, True, 3], "b": {"c": (np.float64(0.25), None)}}
    )
    assert "\n" not in line
    assert json.loads(line) == {"a": [None, None, 1.5, True, 3], "b": {"c": [0.25, None]}}
