"""`draftproof export`: a trained head as another engine loads it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli.options import Json, RemoteCode, Target

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder of a head: ours, or a published one.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="OUT",
        help="Where to write. Default: DIR with -vllm behind it.",
        show_default=False,
    ),
]
Length = Annotated[
    int | None,
    typer.Option(
        "-k",
        metavar="N",
        min=1,
        help="Draft length in the command line. Default: the head's own.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group of commands to `app`."""
    group = typer.Typer(help="Hand a trained head over to another engine.", no_args_is_help=True)
    group.command("vllm")(vllm)
    app.add_typer(group, name="export")


def vllm(
    folder: Folder,
    out: Out = None,
    target: Target = None,
    length: Length = None,
    trust_remote_code: RemoteCode = False,
    as_json: Json = False,
) -> None:
    """Write what `vllm serve` loads, names and shapes checked, and print its command line."""
    from draftproof.heads.for_vllm import READ_AT, export_for_vllm
    from draftproof.report.tables import json_line

    where = out or folder.with_name(f"{folder.resolve().name}-vllm")
    done = export_for_vllm(
        folder, where, target=target, length=length, trust_remote_code=trust_remote_code
    )
    for note in done.notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        typer.echo(json_line({**asdict(done), "vllm": READ_AT}))
        return
    size = f"{done.num_tensors} tensors, {done.num_bytes / 1e6:.1f} MB"
    typer.echo(
        f"{done.folder}: a head for method {done.method}, {size}, as vLLM {READ_AT} reads it"
    )
    typer.echo(done.command)
