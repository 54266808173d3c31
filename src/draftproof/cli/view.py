"""`draftproof view FILE [FILE2]`: what `generate --record` wrote, on one HTML page; two runs stand
side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("view")(view)


def view(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Rounds, as generate --record wrote them.")
    ],
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE2]", help="A second run to stand beside it.", show_default=False
        ),
    ] = None,
    html: Annotated[Path, typer.Option("--html", metavar="OUT", help="The page to write.")] = Path(
        "view.html"
    ),
) -> None:
    """Show recorded rounds on one HTML page: every token by its origin, every draft with what was
    rejected."""
    from draftproof.report.page import check_writable, write_page
    from draftproof.view.data import run_data
    from draftproof.view.page import view_page

    check_writable(html)
    files = [file] if other is None else [file, other]
    if html.resolve() in [path.resolve() for path in files]:
        raise UsageError(
            f"--html {html} is one of the recorded runs, which the page would replace: "
            "name another file"
        )
    write_page(html, view_page([run_data(path) for path in files]))
    typer.echo(f"wrote {html}", err=True)
