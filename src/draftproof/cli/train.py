"""`draftproof train`: draft heads and draft models for a target, from text the target wrote itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli import options
from draftproof.cli import train_flags as flags
from draftproof.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the group of commands to `app`."""
    group = typer.Typer(help="Train draft heads and draft models on text the target wrote itself.", no_args_is_help=True)
    group.command("prompts")(prompts)
    group.command("data")(data)
    for method in ("medusa", "eagle", "eagle3"):
        group.command(method, help=f"Train a head for method {method}.")(_trainer(method))
    group.command("draft")(draft)
    app.add_typer(group, name="train")


def prompts(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write; the same command goes on where it ended.")],
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, help="Begin N questions; poor ones are left out.")
    ] = 1000,
    target: options.Target = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, help="Leave longer questions out.")] = 96,
    temperature: Annotated[float, typer.Option("--temperature", metavar="X", min=0, help="How random questions are.")] = 0.9,
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", min=1, help="Write N questions side by side.")] = 32,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Another seed gives other questions.")] = 0,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    threads: options.Threads = None,
) -> None:
    """Let the target make up questions of its own, as prompts for `train data`."""
    from draftproof.cli.progress import telling
    from draftproof.train.invented import Inventing, invent

    model = load_target(target, dtype, device, threads)
    with telling() as tell:
        how = Inventing(count, temperature, max_tokens, seed, batch_size)
        kept = invent(model, model.tokenizer, how, out, lambda done, total: tell("questions", done, total))
    typer.echo(f"{kept} prompts are in {out}, poor ones left out; next: draftproof train data --data {out} --out texts")


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
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Another seed gives other answers.")] = 0,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    threads: options.Threads = None,
) -> None:
    """Let the target answer prompts and keep what it writes, for training heads on it."""
    from draftproof.cli.progress import telling
    from draftproof.train.answers import Writing, write_answers
    from draftproof.train.mixture import gather
    from draftproof.train.store import TextWriter

    number, parts = _part(part)
    given = {"temperatures": tuple(temperature)} if temperature else {}
    how = Writing(max_tokens=max_tokens, max_prompt_tokens=max_prompt_tokens, seed=seed, batch_size=batch_size, **given)
    prompts = gather(data, kinds=builtin or (), limit=limit)
    mine = [prompt for index, prompt in enumerate(prompts) if index % parts == number]
    model = load_target(target, dtype, device, threads)
    writer = TextWriter(out, how.about(model), model.vocab_size, "" if parts == 1 else f"part{number + 1}of{parts}-")
    with telling() as tell:
        write_answers(
            model,
            model.tokenizer,
            mine,
            writer,
            how,
            lambda done, total, tokens: tell(f"answers, {tokens} tokens written now", done, total),
        )
    typer.echo(f"{len(writer.done)} answers are in {out}")


def _trainer(method: str) -> Any:
    """The command that trains heads of one method."""

    def command(
        out: flags.Out,
        target: options.Target = None,
        data: flags.HeadData = None,
        limit: flags.Limit = None,
        steps: flags.Steps = 2000,
        batch_size: flags.Batch = 4,
        learning_rate: flags.Rate = 1e-3,
        loss: flags.LossName = "cross_entropy",
        loss_temperature: flags.LossHeat = "1",
        unroll: flags.Unroll = 7,
        evaluate_every: flags.LookEvery = 100,
        patience: flags.Patience = 5,
        early_unroll: flags.EarlyUnroll = None,
        hidden_layer: flags.Layers = None,
        intermediate_size: flags.Width = None,
        start: flags.Start = None,
        begin: flags.Begin = None,
        cache: flags.CacheDir = None,
        cache_gb: flags.CacheGB = 10.0,
        draft_vocab_size: flags.DraftVocab = None,
        num_heads: flags.NumHeads = None,
        max_length: flags.MaxLength = 1024,
        seed: flags.Seed = 0,
        dtype: options.Dtype = "float32",
        device: options.Device = "auto",
        threads: options.Threads = None,
    ) -> int:
        from draftproof.train.loop import Settings
        from draftproof.train.run import Recipe

        flags.check_shape(method, start, (draft_vocab_size, num_heads, hidden_layer, intermediate_size, begin))
        settings = Settings(
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            loss=loss,
            temperature=flags.loss_heat(loss_temperature, cache),
            unroll=min(unroll, num_heads or 4) if method == "medusa" else unroll,
            early_unroll=early_unroll,
            evaluate_every=evaluate_every,
            patience=patience,
            seed=seed,
        )
        recipe = Recipe(
            method,
            draft_vocab_size=draft_vocab_size,
            num_heads=num_heads or 4,
            intermediate_size=intermediate_size,
            hidden_layers=tuple(hidden_layer) if hidden_layer else None,
            start=None if start is None else str(start),
            begin=begin or "auto",
        )
        return _train((target, dtype, device, threads), recipe, settings, out, data, limit, max_length, (cache, cache_gb))

    return command


def draft(
    out: flags.Out,
    target: options.Target = None,
    data: flags.HeadData = None,
    limit: flags.Limit = None,
    layers: Annotated[int, typer.Option("--layers", metavar="N", min=1, help="Begin with the target's first N layers.")] = 4,
    start: Annotated[str | None, typer.Option("--start", metavar="NAME", help="Begin with this model instead.")] = None,
    steps: flags.Steps = 2000,
    batch_size: flags.Batch = 4,
    learning_rate: flags.Rate = 3e-4,
    loss: flags.LossName = "cross_entropy",
    loss_temperature: flags.LossHeat = "1",
    length: Annotated[int, typer.Option("--length", metavar="N", min=1, help="Measure acceptance of drafts of N tokens.")] = 4,
    evaluate_every: flags.LookEvery = 100,
    patience: flags.Patience = 5,
    max_length: flags.MaxLength = 1024,
    seed: flags.Seed = 0,
    dtype: options.Dtype = "float32",
    device: options.Device = "auto",
    threads: options.Threads = None,
) -> int:
    """Distil a small draft model for method draft_model, with the target's own tokenizer."""
    from draftproof.train.distil import DraftRecipe, train_draft
    from draftproof.train.loop import Settings
    from draftproof.train.store import read_about, shortened

    settings = Settings(
        steps=steps,
        batch_size=batch_size,
        unroll=length,
        learning_rate=learning_rate,
        loss=loss,
        temperature=flags.loss_heat(loss_temperature),
        evaluate_every=evaluate_every,
        patience=patience,
        seed=seed,
    )
    model = load_target(target, dtype, device, threads)
    texts = shortened(_texts(model, data, out, limit), max_length)
    about = read_about(data) if data is not None and data.is_dir() else {}
    trained = train_draft(
        model,
        texts,
        DraftRecipe(layers, start, length),
        settings,
        out,
        tell=show_look,
        warn=lambda sentence: typer.echo(f"warning: {sentence}", err=True),
        about_texts={"written": about},
    )
    typer.echo(f"the draft model is in {out}, its card in {out / 'card.md'}")
    return _faults(trained.faults)


def _faults(faults: Sequence[str]) -> int:
    for fault in faults:
        typer.echo(f"check failed: {fault}", err=True)
    return 1 if faults else 0


def _train(
    place: tuple[str | None, str, str, int | None],
    recipe: Any,
    settings: Any,
    out: Path,
    data: Path | None,
    limit: int | None,
    max_length: int,
    cache: tuple[Path | None, float],
) -> int:
    from draftproof.cli.progress import telling
    from draftproof.train.run import Cache, train_head
    from draftproof.train.store import read_about, shortened

    model = load_target(*place)
    texts = shortened(_texts(model, data, out, limit), max_length)
    about = read_about(data) if data is not None and data.is_dir() else {}

    folder, gigabytes = cache
    with telling() as progress:
        kept = None
        if folder is not None:
            told = partial(progress, "hidden states written, texts")
            kept = Cache(folder, int(gigabytes * 1e9), partial(typer.echo, err=True), told)
        trained = train_head(
            model,
            texts,
            recipe,
            settings,
            out,
            tell=show_look,
            warn=lambda sentence: typer.echo(f"warning: {sentence}", err=True),
            about_texts={"written": about},
            cache=kept,
        )
    typer.echo(f"the head is in {out}, its card in {out / 'card.md'}")
    return _faults(trained.faults)


def show_look(look: Any) -> None:
    """One line on standard error about a look at the held-out texts."""
    chances = " ".join(f"{chance:.2f}" for chance in look.acceptance.marginal)
    length = look.acceptance.mean_acceptance_length
    plan = "" if look.speedup is None else f", {look.speedup:.2f}x plain at {look.length} drafts"
    typer.echo(f"step {look.step}: loss {look.loss:.3f}, held out {chances}, {length:.2f} tokens a round{plan}", err=True)


def _texts(model: Any, data: Path | None, out: Path, limit: int | None) -> list[Any]:
    """The texts to train on: those of a folder, or the target's answers to prompts, written beside the head first."""
    from draftproof.train.answers import Writing, write_answers
    from draftproof.train.mixture import gather
    from draftproof.train.store import TextWriter, read_about, read_texts

    if data is not None and data.is_dir():
        about = read_about(data)
        if about["vocab_size"] != model.vocab_size:
            raise UsageError(
                f"the texts in {data} are of a vocabulary of {about['vocab_size']}; {model.name} has {model.vocab_size}"
            )
        return read_texts(data)[:limit]
    how = Writing()
    writer = TextWriter(out / "texts", how.about(model), model.vocab_size)
    write_answers(model, model.tokenizer, gather(data, limit=limit), writer, how)
    return read_texts(out / "texts")


def load_target(name: str | None, dtype: str, device: str, threads: int | None) -> Any:
    """The target with its tokenizer; UsageError when it has none, for then there is nothing to ask it with."""
    from draftproof.models.place import check_place
    from draftproof.models.pull import DEFAULT_MODEL

    check_place(name or DEFAULT_MODEL)
    import torch

    from draftproof.models.load import load_model

    if threads is not None:
        torch.set_num_threads(threads)
    model = load_model(name or DEFAULT_MODEL, dtype=dtype, device=device)
    if model.tokenizer is None:
        raise UsageError(f"{model.name} has no tokenizer: it cannot be asked anything")
    return model


def _part(text: str) -> tuple[int, int]:
    """(index from 0, number of parts) of "I/N"."""
    first, _, last = text.partition("/")
    if not (first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise UsageError(f"--part is {text!r}; it is like 1/2, the first of two parts")
    return int(first) - 1, int(last)
