"""`draftproof train`: draft heads and draft models for a target, from text the target wrote
itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftproof.cli import options
from draftproof.cli import train_flags as flags
from draftproof.cli.train_heads import answers_told, check_folder, draft, trainer, warn
from draftproof.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the group of commands to `app`."""
    group = typer.Typer(
        help="Train draft heads and draft models on text the target wrote itself.",
        no_args_is_help=True,
    )
    group.command("prompts")(prompts)
    group.command("data")(data)
    for method in ("medusa", "eagle", "eagle3"):
        group.command(method, help=f"Train a head for method {method}.")(trainer(method))
    group.command("draft")(draft)
    app.add_typer(group, name="train")


def prompts(
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="File to write; the same command goes on where it ended."
        ),
    ],
    count: Annotated[
        int,
        typer.Option(
            "--count", metavar="N", min=1, help="Begin N questions; poor ones are left out."
        ),
    ] = 1000,
    target: options.Target = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", min=1, help="Leave longer questions out.")
    ] = 96,
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="X", min=0, help="How random questions are.")
    ] = 0.9,
    batch_size: Annotated[
        int,
        typer.Option("--batch-size", metavar="N", min=1, help="Write N questions side by side."),
    ] = 32,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Another seed gives other questions.")
    ] = 0,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    threads: options.Threads = None,
    trust_remote_code: options.RemoteCode = False,
) -> None:
    """Let the target make up questions of its own, as prompts for `train data`."""
    from draftproof.cli.loading import load_target
    from draftproof.cli.progress import telling
    from draftproof.report.page import check_writable
    from draftproof.train.invented import Inventing, invent

    check_writable(out)
    model, _ = load_target(
        {
            "target": target,
            "dtype": dtype,
            "device": device,
            "threads": threads,
            "trust_remote_code": trust_remote_code,
        }
    )
    with telling() as tell:
        how = Inventing(count, temperature, max_tokens, seed, batch_size)
        kept = invent(
            model, model.tokenizer, how, out, lambda done, total: tell("questions", done, total)
        )
    typer.echo(
        f"{kept} prompts are in {out}, poor ones left out; next: draftproof train data "
        f"--data {out} --out texts"
    )


def data(
    out: flags.Out,
    target: options.Target = None,
    data: flags.Data = None,
    builtin: flags.Builtin = None,
    limit: flags.Limit = None,
    max_tokens: flags.MaxTokens = 256,
    max_prompt_tokens: flags.MaxPrompt = 512,
    temperature: flags.Temperatures = None,
    batch_size: flags.BatchSize = 32,
    part: flags.Part = "1/1",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Another seed gives other answers.")
    ] = 0,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    threads: options.Threads = None,
    trust_remote_code: options.RemoteCode = False,
) -> None:
    """Let the target answer prompts and keep what it writes, for training heads on it."""
    from draftproof.cli.loading import load_target
    from draftproof.cli.progress import telling
    from draftproof.train.answers import Writing, write_answers
    from draftproof.train.mixture import gather
    from draftproof.train.store import TextWriter

    check_folder("--out", out)
    number, parts = _part(part)
    given = {"temperatures": tuple(temperature)} if temperature else {}
    how = Writing(
        max_tokens=max_tokens,
        max_prompt_tokens=max_prompt_tokens,
        seed=seed,
        batch_size=batch_size,
        **given,
    )
    prompts = gather(data, kinds=builtin or (), limit=limit)
    mine = [prompt for index, prompt in enumerate(prompts) if index % parts == number]
    model, _ = load_target(
        {
            "target": target,
            "dtype": dtype,
            "device": device,
            "threads": threads,
            "trust_remote_code": trust_remote_code,
        }
    )
    writer = TextWriter(
        out, how.about(model), model.vocab_size, "" if parts == 1 else f"part{number + 1}of{parts}-"
    )
    with telling() as tell:
        write_answers(model, model.tokenizer, mine, writer, how, answers_told(tell), warn)
    typer.echo(f"{len(writer.done)} answers are in {out}")


def _part(text: str) -> tuple[int, int]:
    """(index from 0, number of parts) of "I/N"."""
    first, _, last = text.partition("/")
    if not (first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise UsageError(f"--part is {text!r}; it is like 1/2, the first of two parts")
    return int(first) - 1, int(last)
