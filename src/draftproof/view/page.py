"""The page: the template `page.html` with its style, its scripts and the runs as JSON inside.
Nothing else of the runs is written into it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

SCRIPTS = ("run.js", "charts.js", "start.js")


def view_page(runs: Sequence[Mapping[str, Any]]) -> str:
    """One self-contained HTML document that shows one run, or two side by side, and fetches
    nothing."""
    return _page(runs, SCRIPTS, "'none'")


def live_page() -> str:
    """The document that a server gives: it asks that server, and no other, and shows the answer
    while it comes."""
    return _page((), (*SCRIPTS, "live.js"), "'self'")


def _page(runs: Sequence[Mapping[str, Any]], scripts: Sequence[str], connect: str) -> str:
    before, after = (
        _source("page.html")
        .replace("@CONNECT@", connect)
        .replace("@STYLE@", _source("page.css"))
        .replace("@SCRIPT@", "".join(map(_source, scripts)))
        .split("@RUNS@")
    )
    return before + as_script(runs) + after


def _source(name: str) -> str:
    return files("draftproof.view").joinpath(name).read_text(encoding="utf-8")


def as_script(value: Any) -> str:
    """JSON in ASCII that can stand in a script tag: no text in it can close the tag or begin
    another."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
