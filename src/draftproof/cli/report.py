"""`draftproof report a.json b.json`: results of `plan` and `bench`, written with --out, side by side on one HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.errors import UsageError

FORMATS = ("draftproof.bench", "draftproof.plan")


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
    documents = [(path.name, read_document(path)) for path in files]
    write_page(html, comparison_page(documents, sections_of))
    typer.echo(f"wrote {html}", err=True)


def read_document(path: Path) -> dict[str, Any]:
    """A result file. UsageError: not readable, not JSON, or nothing that plan or bench wrote."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, Mapping) or data.get("format") not in FORMATS:
        raise UsageError(f"{path} is no result of plan or bench; write one with their --out")
    return dict(data)


def sections_of(data: Mapping[str, Any]) -> Sequence[Any]:
    """What a page shows of one document."""
    if data["format"] == "draftproof.plan":
        from draftproof.plan.document import sections

        return sections(data)
    from draftproof.cli.bench import sections_of as bench_sections

    return bench_sections(data)
