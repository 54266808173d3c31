"""Self-contained HTML: results as sections of one page, their figures inside as SVG; nothing is
fetched when it is opened."""

from __future__ import annotations

import html
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from draftproof import __version__
from draftproof.errors import UsageError
from draftproof.report.comparison import comparisons
from draftproof.report.figures import HEIGHT, STYLE, WIDTH
from draftproof.report.result import Result
from draftproof.report.tables import json_line

CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222;
       max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .25rem .8rem .25rem 0; text-align: right; white-space: pre; }
th { border-bottom: 2px solid #222; vertical-align: bottom; } .wide { overflow-x: auto; }
td { border-bottom: 1px solid #ddd; } th.words, td.words { text-align: left; }
svg { width: 54rem; max-width: 100%; min-width: 34rem; height: auto; }
pre { background: #f4f4f4; padding: .8rem; overflow-x: auto; }
h2 { overflow-wrap: anywhere; }
footer, .where { color: #666; font-size: .85rem; overflow-wrap: anywhere; }
.headline { font-size: 1.15rem; font-weight: 600; }
"""


def check_writable(path: Path) -> None:
    """UsageError when nothing could be written to `path`; touches nothing."""
    if path.is_dir():
        raise UsageError(f"cannot write to {path}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write to {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"cannot write to {path}: you may not; name another file")


def write_page(path: Path, text: str) -> None:
    """UsageError when the page cannot be written."""
    _write(path, text)


def write_json(path: Path, document: object) -> None:
    """One strict JSON document with a final line break."""
    _write(path, json_line(document) + "\n")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror or error}") from error


def page(title: str, sections: Sequence[str]) -> str:
    """One HTML document. title: text. sections: HTML."""
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta '
        f'charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, '
        f'initial-scale=1">\n<style>{CSS}</style>\n</head>\n<body>\n'
        f"<h1>{html.escape(title)}</h1>\n{body}\n<footer>draftproof "
        f"{__version__}</footer>\n</body>\n</html>\n"
    )


def section(result: Result, heading: str | None = None) -> str:
    """A result: heading (the result's title if None, none if empty), table, notes, and its figure
    when matplotlib is there."""
    said = result.title if heading is None else heading
    parts = [f"<h2>{html.escape(said)}</h2>"] if said else []
    parts.append(table(result))
    if result.notes:
        parts.append(
            "<ul>" + "".join(f"<li>{html.escape(note)}</li>" for note in result.notes) + "</ul>"
        )
    return "\n".join([*parts, figure(result.draw)])


def table(result: Result) -> str:
    """The result's rows as an HTML table."""
    words = {
        c.key for c in result.columns if any(isinstance(row.get(c.key), str) for row in result.rows)
    }
    kinds = {c.key: ' class="words"' if c.key in words else "" for c in result.columns}
    head = "".join(f"<th{kinds[c.key]}>{html.escape(c.heading)}</th>" for c in result.columns)
    lines = [
        "<tr>"
        + "".join(
            f"<td{kinds[c.key]}>{html.escape(c.text(row.get(c.key)))}</td>" for c in result.columns
        )
        + "</tr>"
        for row in result.rows
    ]
    return (
        "<div "
        f'class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )


def figure(draw: Callable[[Any], None], width: float = WIDTH, height: float = HEIGHT) -> str:
    """What `draw` puts on a figure, as inline SVG; a sentence where matplotlib is absent; nothing
    when nothing is drawn."""
    if find_spec("matplotlib") is None:
        return "<p>Figures need matplotlib: pip install 'draftproof[plot]'</p>"
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE | {"svg.fonttype": "path"}):
        drawn = Figure(figsize=(width, height), layout="constrained")
        draw(drawn)
        if not drawn.axes:
            return ""
        out = io.StringIO()
        drawn.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return f'<div class="wide">{text[text.index("<svg") :]}</div>'


def preformatted(value: object) -> str:
    """A value as indented JSON."""
    return f"<pre>{html.escape(json.dumps(value, indent=2))}</pre>"


def surroundings(provenance: Mapping[str, Any]) -> str:
    """What a figure depends on, in small print."""
    pairs = "; ".join(f"{key} {value}" for key, value in provenance.items() if value is not None)
    return f'<p class="where">{html.escape(pairs)}</p>'


def comparison_page(
    documents: Sequence[tuple[str, Mapping[str, Any]]],
    results: Callable[[Mapping[str, Any]], Sequence[Result]],
) -> str:
    """One page for several result documents, each named: first what they say of each other, then
    each by itself. `results` turns one into what is shown of it."""
    sections = [section(result) for result in comparisons(documents)] if len(documents) > 1 else []
    alone = len(documents) == 1
    title = f"{len(documents)} runs compared"
    for name, document in documents:
        first, *others = results(document)
        if alone:
            title = f"{name}: {first.title}"
        sections.append(section(first, "" if alone else f"{name}: {first.title}"))
        if document.get("speculative_config"):
            sections.append(preformatted(document["speculative_config"]))
        sections += [
            section(other, other.title if alone else f"{name}: {other.title}") for other in others
        ]
        sections.append(surroundings(document.get("provenance", {})))
    return page(title, sections)
