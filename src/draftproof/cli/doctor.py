"""`draftproof doctor [TARGET] [--draft D]`: what this machine and this pair of models can do, and
why not more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from draftproof.cli.options import Device, Dtype, Engine, Json, Quantize, RemoteCode, Threads
from draftproof.errors import UsageError

TargetName = Annotated[
    str | None,
    typer.Argument(
        metavar="[TARGET]",
        help="A model to look at: hub id, folder or .gguf file. Without one, the machine alone.",
        show_default=False,
    ),
]
DraftName = Annotated[
    str | None,
    typer.Option(
        "--draft",
        metavar="D",
        help="A draft model, or the folder of a head, to look at beside it.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("doctor")(doctor)


def doctor(
    target: TargetName = None,
    draft: DraftName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    threads: Threads = None,
    engine: Engine = "auto",
    quantize: Quantize = None,
    trust_remote_code: RemoteCode = False,
    as_json: Json = False,
) -> None:
    """Say what this machine and these models can do: versions, speed by dtype, caches,
    vocabularies, methods."""
    if draft is not None and target is None:
        raise UsageError("--draft needs a target beside it: draftproof doctor TARGET --draft D")
    if dtype != "auto" and target is None:
        raise UsageError(
            "--dtype is what a target is loaded in, and all are timed without one: "
            "draftproof doctor TARGET --dtype"
        )
    from draftproof.cli.progress import telling
    from draftproof.decode.examine import examine
    from draftproof.models.place import check_place
    from draftproof.report.tables import json_line

    if target is not None:
        check_place(target)
    with telling() as tell:
        how = {
            "dtype": dtype,
            "device": device,
            "engine": engine,
            "trust_remote_code": trust_remote_code,
        }
        document = examine(target, draft, how, quantize, threads, tell)
    if as_json:
        typer.echo(json_line(document))
    else:
        show(document)


def show(document: Mapping[str, Any]) -> None:
    """The same for people, on standard output."""
    from draftproof.cli.doctor_page import lines

    for line in lines(document):
        typer.echo(line)
