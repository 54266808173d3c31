"""The page: the template `page.html` with the runs as JSON inside. Nothing else of the runs is
written into it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

PLACE = "@RUNS@"


def view_page(runs: Sequence[Mapping[str, Any]]) -> str:
    """One self-contained HTML document that shows one run, or two side by side."""
    before, after = (
        files("draftproof.view").joinpath("page.html").read_text(encoding="utf-8").split(PLACE)
    )
    return before + as_script(runs) + after


def as_script(value: Any) -> str:
    """JSON in ASCII that can stand in a script tag: no text in it can close the tag or begin
    another."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
