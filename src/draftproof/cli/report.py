"""`draftproof report a.json b.json`: results of `plan` and `bench`, written with --out, side by side on one HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.errors import UsageError

FORMATS = {
    "draftproof.bench": ("level", "arms", "flags", "prompts", "params", "repeats", "provenance"),
    "draftproof.plan": ("headline", "notes", "choices", "best", "drafters", "prompts", "params", "provenance"),
}
"""Format -> what a result of it holds at least."""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("report")(report)


def report(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results of plan and bench, as --out wrote them.")],
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="The page to write.")] = Path("report.html"),
) -> None:
    """Put several results on one HTML page."""
    from draftproof.report.page import check_writable, comparison_page, write_page

    check_writable(html)
    if html.resolve() in [path.resolve() for path in files]:
        raise UsageError(f"--html {html} is one of the results, which the page would replace: name another file")
    documents = list(zip(names_of(files), map(read_document, files), strict=True))
    write_page(html, comparison_page(documents, sections_of))
    typer.echo(f"wrote {html}", err=True)


def names_of(files: Sequence[Path]) -> list[str]:
    """What the results are called on the page: the names of their files, with the folders where names alone would be the same.
    UsageError for a file that is named twice."""
    whole = [path.resolve() for path in files]
    twice = next((path for path, place in zip(files, whole, strict=True) if whole.count(place) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice: a result stands on the page once")
    names = [path.name for path in files]
    return names if len(set(names)) == len(names) else [str(path) for path in files]


def read_document(path: Path) -> dict[str, Any]:
    """A result file. UsageError: not readable, not JSON, or nothing that plan or bench wrote."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, Mapping) or data.get("format") not in list(FORMATS):
        raise UsageError(f"{path} is no result of plan or bench; write one with their --out")
    missing = [key for key in FORMATS[data["format"]] if key not in data]
    if missing:
        raise UsageError(f"{path} is damaged, or of another version: it lacks {', '.join(missing)}")
    return dict(data)


def sections_of(data: Mapping[str, Any]) -> Sequence[Any]:
    """What a page shows of one document."""
    if data["format"] == "draftproof.plan":
        from draftproof.plan.document import sections

        return sections(data)
    from draftproof.cli.bench import sections_of as bench_sections

    return bench_sections(data)
