"""`draftproof experiments`: run an experiment, print its table, draw its figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("experiments")(experiments)


def experiments(
    name: Annotated[
        str, typer.Argument(help="The experiment to run, or `all`; without a name they are listed.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Draw figures into this folder, as PNG and SVG.", file_okay=False),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness. Default: 0.")] = None,
    runs: Annotated[
        int | None, typer.Option(help="How many samples are drawn. Default: each experiment's own.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Run the experiments on exactness and speed, and draw their figures."""
    from draftproof.errors import UsageError
    from draftproof.experiments.registry import EXPERIMENTS, Settings, run
    from draftproof.report.figures import check_plotting, save_figure
    from draftproof.report.tables import json_line, print_result

    if not name:
        if out is not None or seed is not None or runs is not None:
            raise UsageError(f"name an experiment to run: all, {', '.join(EXPERIMENTS)}")
        for known, text in EXPERIMENTS.items():
            typer.echo(f"{known:<16}{text}")
        if json:
            typer.echo(json_line({"experiments": EXPERIMENTS}))
        return
    if name == "all" and (seed is not None or runs is not None):
        raise UsageError("--seed and --runs go with a single experiment, not with all of them")
    if out is not None:
        check_plotting()
    documents = []
    for chosen in EXPERIMENTS if name == "all" else (name,):
        typer.echo(f"running {chosen}", err=True)
        result = run(chosen, Settings(seed, runs))
        print_result(result)
        figures = [] if out is None else save_figure(result.draw, out, chosen)
        for path in figures:
            typer.echo(f"wrote {path}", err=True)
        documents.append({**result.document(), "figures": [str(path) for path in figures]})
    if json:
        typer.echo(json_line({"experiments": documents} if name == "all" else documents[0]))
