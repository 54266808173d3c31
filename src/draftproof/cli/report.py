"""`draftproof report a.json b.json`: results of `plan` and `bench`, written with --out, side by
side on one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("report")(report)


def report(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Results of plan and bench, as --out wrote them."),
    ],
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
) -> None:
    """Put several results on one HTML page."""
    from draftproof.report.documents import names_of, read_document, sections_of
    from draftproof.report.page import check_writable, comparison_page, write_page

    check_writable(html)
    if html.resolve() in [path.resolve() for path in files]:
        raise UsageError(
            f"--html {html} is one of the results, which the page would replace: name another file"
        )
    documents = list(zip(names_of(files), map(read_document, files), strict=True))
    write_page(html, comparison_page(documents, sections_of))
    typer.echo(f"wrote {html}", err=True)
