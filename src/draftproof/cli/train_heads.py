"""`draftproof train medusa`, `eagle`, `eagle3` and `draft`: from texts, or from prompts that the
target answers first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from draftproof.cli import options
from draftproof.cli import train_flags as flags
from draftproof.errors import UsageError


def trainer(method: str) -> Any:
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
        unroll: flags.Unroll = None,
        evaluate_every: flags.LookEvery = 100,
        patience: flags.Patience = 5,
        early_unroll: flags.EarlyUnroll = None,
        hidden_layer: flags.HiddenLayers = None,
        intermediate_size: flags.Width = None,
        start: flags.Start = None,
        average_start: flags.AverageStart = False,
        begin: flags.Begin = None,
        cache: flags.CacheDir = None,
        cache_gb: flags.CacheGB = None,
        draft_vocab_size: flags.DraftVocab = None,
        num_heads: flags.NumHeads = None,
        max_length: flags.MaxLength = 1024,
        seed: flags.Seed = 0,
        dtype: options.Dtype = "float32",
        device: options.Device = "auto",
        threads: options.Threads = None,
        trust_remote_code: options.RemoteCode = False,
    ) -> int:
        from draftproof.train.loop import Settings

        recipe = _recipe(
            method, start, (draft_vocab_size, num_heads, hidden_layer, intermediate_size, begin)
        )
        settings = Settings(
            steps=steps,
            batch_size=batch_size,
            unroll=flags.positions(method, unroll, early_unroll, num_heads, start),
            early_unroll=early_unroll,
            learning_rate=learning_rate,
            loss=loss,
            temperature=flags.loss_heat(loss_temperature, cache),
            evaluate_every=evaluate_every,
            patience=patience,
            average_start=flags.averaged(average_start, start),
            seed=seed,
        )
        where = {"target": target, "dtype": dtype, "device": device, "threads": threads}
        where["trust_remote_code"] = trust_remote_code
        states = flags.kept_states(cache, cache_gb)
        return _train(where, recipe, settings, out, data, limit, max_length, states)

    return command


def _recipe(method: str, start: Path | None, shape: tuple[Any, ...]) -> Any:
    """shape: the values of the flags in `flags.SHAPE`, in its order."""
    from draftproof.train.run import Recipe

    flags.check_shape(method, start, shape)
    draft_vocab_size, num_heads, hidden_layer, intermediate_size, begin = shape
    return Recipe(
        method,
        draft_vocab_size=draft_vocab_size,
        num_heads=num_heads or flags.NUM_HEADS,
        intermediate_size=intermediate_size,
        hidden_layers=tuple(hidden_layer) if hidden_layer else None,
        start=None if start is None else str(start),
        begin=begin or "auto",
    )


def _train(
    where: dict[str, Any],
    recipe: Any,
    settings: Any,
    out: Path,
    data: Path | None,
    limit: int | None,
    max_length: int,
    cache: tuple[Path, float] | None,
) -> int:
    """Load the target, train a head, and say how it went. where: the flags of `load_target`."""
    from draftproof.cli.loading import load_target
    from draftproof.cli.progress import telling
    from draftproof.train.run import Cache, check_recipe, train_head

    check_folder("--out", out)
    if cache is not None:
        check_folder("--cache", cache[0])
    prompts = _asked(data, limit)
    model, _ = load_target(where)
    check_recipe(recipe, model)
    texts, written = _texts(model, data, prompts, out, limit, max_length)
    with telling() as progress:
        kept = None
        if cache is not None:
            told = partial(progress, "hidden states written, texts")
            kept = Cache(cache[0], int(cache[1] * 1e9), partial(typer.echo, err=True), told)
        trained = train_head(
            model,
            texts,
            recipe,
            settings,
            out,
            tell=show_look,
            warn=warn,
            about_texts={"written": written},
            cache=kept,
        )
    typer.echo(f"the head is in {out}, its card in {out / 'card.md'}")
    return _faults(trained.faults)


def draft(
    out: flags.Out,
    target: options.Target = None,
    data: flags.HeadData = None,
    limit: flags.Limit = None,
    layers: flags.Layers = None,
    start: flags.StartModel = None,
    steps: flags.Steps = 2000,
    batch_size: flags.Batch = 4,
    learning_rate: flags.Rate = 3e-4,
    loss: flags.LossName = "cross_entropy",
    loss_temperature: flags.LossHeat = "1",
    length: flags.Length = 4,
    evaluate_every: flags.LookEvery = 100,
    patience: flags.Patience = 5,
    max_length: flags.MaxLength = 1024,
    seed: flags.Seed = 0,
    dtype: options.Dtype = "float32",
    device: options.Device = "auto",
    threads: options.Threads = None,
    trust_remote_code: options.RemoteCode = False,
) -> int:
    """Distil a small draft model for method draft_model, with the target's own tokenizer."""
    from draftproof.cli.loading import load_target
    from draftproof.models.place import check_place
    from draftproof.train.distil import DraftRecipe, check_layers, train_draft
    from draftproof.train.loop import Settings

    if layers is not None and start is not None:
        raise UsageError(
            "--layers are of the target, and --start begins with another model: leave "
            "one of them out"
        )
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
    recipe = DraftRecipe(flags.LAYERS if layers is None else layers, start, length)
    check_folder("--out", out)
    if start is not None:
        check_place(start)
    prompts = _asked(data, limit)
    model, _ = load_target(
        {
            "target": target,
            "dtype": dtype,
            "device": device,
            "threads": threads,
            "trust_remote_code": trust_remote_code,
        }
    )
    check_layers(model, recipe)
    texts, written = _texts(model, data, prompts, out, limit, max_length)
    trained = train_draft(
        model,
        texts,
        recipe,
        settings,
        out,
        tell=show_look,
        warn=warn,
        about_texts={"written": written},
    )
    typer.echo(f"the draft model is in {out}, its card in {out / 'card.md'}")
    return _faults(trained.faults)


def _asked(data: Path | None, limit: int | None) -> list[Any] | None:
    """The prompts that are to be answered first; None where `data` is a folder of texts.
    UsageError: nothing usable there."""
    from draftproof.train.mixture import gather
    from draftproof.train.store import read_about

    if data is not None and data.is_dir():
        read_about(data)
        return None
    return gather(data, limit=limit)


def _texts(
    model: Any,
    data: Path | None,
    prompts: list[Any] | None,
    out: Path,
    limit: int | None,
    max_length: int,
) -> tuple[list[Any], dict[str, Any]]:
    """The texts to train on, at most `max_length` tokens long, and how they were written: those of
    the folder `data`, or the target's answers to `prompts`, kept in a folder in `out`."""
    from draftproof.train.store import read_about, read_texts, shortened

    if prompts is None:
        assert data is not None
        about = read_about(data)
        if about["vocab_size"] != model.vocab_size:
            raise UsageError(
                f"the texts in {data} are of a vocabulary of {about['vocab_size']}; "
                f"{model.name} has {model.vocab_size}"
            )
        found = read_texts(data)[:limit]
    else:
        found, about = _answered(model, prompts, out / "texts")
    kept = shortened(found, max_length)
    if not kept:
        raise UsageError(
            f"every prompt of the {len(found)} texts has {max_length - 1} tokens or "
            "more: raise --max-length"
        )
    return kept, about


def _answered(model: Any, prompts: list[Any], folder: Path) -> tuple[list[Any], dict[str, Any]]:
    """The target's answers to `prompts`, those that are not in the folder yet written now, and what
    the folder says of them."""
    from draftproof.cli.progress import telling
    from draftproof.train.answers import Writing, write_answers
    from draftproof.train.store import TextWriter, read_about, read_texts

    how = Writing()
    writer = TextWriter(folder, how.about(model), model.vocab_size)
    with telling() as tell:
        write_answers(model, model.tokenizer, prompts, writer, how, answers_told(tell), warn)
    keys = {prompt.key for prompt in prompts}
    return [text for text in read_texts(folder) if text.key in keys], read_about(folder)


def answers_told(tell: Any) -> Any:
    """What is told of answers being written, as `telling` wants it."""
    return lambda done, total, tokens: tell(f"answers, {tokens} tokens written now", done, total)


def warn(sentence: str) -> None:
    """One line on standard error."""
    typer.echo(f"warning: {sentence}", err=True)


def check_folder(flag: str, folder: Path) -> None:
    """UsageError when `folder` is a file, or lies in one."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"{flag} {folder} cannot be a folder: {there} is a file")


def show_look(look: Any) -> None:
    """One line on standard error about a look at the held-out texts."""
    chances = " ".join(f"{chance:.2f}" for chance in look.acceptance.marginal)
    length = look.acceptance.mean_acceptance_length
    plan = "" if look.speedup is None else f", {look.speedup:.2f}x plain at {look.length} drafts"
    typer.echo(
        (
            f"step {look.step}: loss {look.loss:.3f}, held out {chances}, {length:.2f} "
            f"tokens a round{plan}"
        ),
        err=True,
    )


def _faults(faults: Sequence[str]) -> int:
    for fault in faults:
        typer.echo(f"check failed: {fault}", err=True)
    return 1 if faults else 0
