"""`draftproof train`: draft heads and draft models for a target, from text the target wrote itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli import options
from draftproof.errors import UsageError

Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="FILE", help="Prompts, one JSON object a line. Default: a built-in set.", show_default=False
    ),
]
Builtin = Annotated[
    list[str] | None,
    typer.Option("--builtin", metavar="KIND", help="Built-in prompts beside the file's: chat, code or summary; repeatable."),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write; the same command goes on where it ended.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Take at most N prompts.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, help="End an answer at N tokens.")]
MaxPrompt = Annotated[int, typer.Option("--max-prompt-tokens", metavar="N", min=1, help="Leave prompts of more than N out.")]
BatchSize = Annotated[int, typer.Option("--batch-size", metavar="N", min=1, help="Write N answers side by side.")]
Temperatures = Annotated[
    list[float] | None,
    typer.Option(
        "--temperature", metavar="X", min=0, help="How random answers are, in turn; repeatable. Default: 0 0.7 0.7 1."
    ),
]
Part = Annotated[
    str, typer.Option("--part", metavar="I/N", help="Write the I-th of N parts, beside the others' in the same folder.")
]


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
    out: Out,
    target: options.Target = None,
    data: Data = None,
    builtin: Builtin = None,
    limit: Limit = None,
    max_tokens: MaxTokens = 256,
    max_prompt_tokens: MaxPrompt = 512,
    temperature: Temperatures = None,
    batch_size: BatchSize = 32,
    part: Part = "1/1",
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


HeadData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="A folder that `train data` wrote, or a file of prompts to be answered first. Default: built-in prompts.",
        show_default=False,
    ),
]
Count = typer.Option
Steps = Annotated[int, Count("--steps", metavar="N", min=1, help="Train for N steps of the optimiser.")]
Batch = Annotated[int, Count("--batch-size", metavar="N", min=1, help="How many texts each step reads.")]
Rate = Annotated[float, Count("--learning-rate", metavar="X", min=0, help="Learning rate of the optimiser, AdamW.")]
LossName = Annotated[str, Count("--loss", metavar="NAME", help="cross_entropy, total_variation or log_acceptance.")]
LookEvery = Annotated[
    int, Count("--evaluate-every", metavar="N", min=1, help="Measure acceptance on held-out texts every N steps.")
]
Patience = Annotated[int, Count("--patience", metavar="N", min=0, help="Stop after N measurements without gain; 0: never.")]
MaxLength = Annotated[int, Count("--max-length", metavar="N", min=4, help="Cut texts after N tokens.")]
Unroll = Annotated[int, Count("--unroll", metavar="N", min=1, help="Train the head to draft N tokens ahead.")]
EarlyUnroll = Annotated[
    int | None, Count("--early-unroll", metavar="N", min=1, help="Another --unroll for the first two thirds.")
]
Width = Annotated[
    int | None, Count("--intermediate-size", metavar="N", min=1, help="Width of the layer's MLP. Default: the target's.")
]
Begin = Annotated[
    str | None,
    Count("--begin", metavar="HOW", help="eagle3's first weights: target (its last layer), random or auto (default)."),
]
DraftVocab = Annotated[
    int | None,
    Count("--draft-vocab-size", metavar="N", min=1, help="eagle3 drafts among N tokens. Default: 4096, or those of --start."),
]
NumHeads = Annotated[
    int | None, Count("--num-heads", metavar="N", min=1, help="medusa: heads, one a drafted position. Default: 4.")
]
Seed = Annotated[int, Count("--seed", metavar="N", min=0, help="Seed of first weights and of the texts' order.")]
Layers = Annotated[
    list[int] | None,
    typer.Option("--hidden-layer", metavar="N", min=0, help="eagle3: a layer of the target that the head reads; repeatable."),
]
Start = Annotated[Path | None, typer.Option("--start", metavar="DIR", help="Begin with the trained head in this folder.")]
CacheDir = Annotated[
    Path | None,
    typer.Option("--cache", metavar="DIR", help="Keep the target's hidden states here, so that they are computed once."),
]
CacheGB = Annotated[float, typer.Option("--cache-gb", metavar="X", min=0, help="Most GB that the folder of --cache may take.")]


SHAPE = {
    "--draft-vocab-size": ("eagle3",),
    "--num-heads": ("medusa",),
    "--hidden-layer": ("eagle3",),
    "--intermediate-size": ("eagle", "eagle3"),
    "--begin": ("eagle3",),
}
"""Flag -> the methods whose heads it shapes. A head that is gone on with has its shape; only its draft vocabulary can grow."""


def _check_shape(method: str, start: Path | None, given: Sequence[Any]) -> None:
    """given: the values of SHAPE's flags, in its order."""
    for flag, value in zip(SHAPE, given, strict=True):
        if not value:
            continue
        if method not in SHAPE[flag]:
            raise UsageError(f"{flag} is for {' and '.join(SHAPE[flag])}; train {method} has no such thing")
        if start is not None and flag != "--draft-vocab-size":
            raise UsageError(f"{flag} shapes a fresh head; the one in {start} has its shape: leave out {flag} or --start")


def _trainer(method: str) -> Any:
    """The command that trains heads of one method."""

    def command(
        out: Out,
        target: options.Target = None,
        data: HeadData = None,
        limit: Limit = None,
        steps: Steps = 2000,
        batch_size: Batch = 4,
        learning_rate: Rate = 1e-3,
        loss: LossName = "cross_entropy",
        unroll: Unroll = 7,
        evaluate_every: LookEvery = 100,
        patience: Patience = 5,
        early_unroll: EarlyUnroll = None,
        hidden_layer: Layers = None,
        intermediate_size: Width = None,
        start: Start = None,
        begin: Begin = None,
        cache: CacheDir = None,
        cache_gb: CacheGB = 10.0,
        draft_vocab_size: DraftVocab = None,
        num_heads: NumHeads = None,
        max_length: MaxLength = 1024,
        seed: Seed = 0,
        dtype: options.Dtype = "float32",
        device: options.Device = "auto",
        threads: options.Threads = None,
    ) -> int:
        from draftproof.train.loop import Settings
        from draftproof.train.run import Recipe

        _check_shape(method, start, (draft_vocab_size, num_heads, hidden_layer, intermediate_size, begin))
        num_heads = num_heads or 4
        settings = Settings(
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            loss=loss,
            unroll=min(unroll, num_heads) if method == "medusa" else unroll,
            early_unroll=early_unroll,
            evaluate_every=evaluate_every,
            patience=patience,
            seed=seed,
        )
        recipe = Recipe(
            method,
            draft_vocab_size=draft_vocab_size,
            num_heads=num_heads,
            intermediate_size=intermediate_size,
            hidden_layers=tuple(hidden_layer) if hidden_layer else None,
            start=None if start is None else str(start),
            begin=begin or "auto",
        )
        model = load_target(target, dtype, device, threads)
        return _train(model, recipe, settings, out, data, limit, max_length, (cache, cache_gb))

    return command


def draft(
    out: Out,
    target: options.Target = None,
    data: HeadData = None,
    limit: Limit = None,
    layers: Annotated[int, Count("--layers", metavar="N", min=1, help="Begin with the target's first N layers.")] = 4,
    start: Annotated[str | None, Count("--start", metavar="NAME", help="Begin with this model instead.")] = None,
    steps: Steps = 2000,
    batch_size: Batch = 4,
    learning_rate: Rate = 3e-4,
    loss: LossName = "cross_entropy",
    length: Annotated[int, Count("--length", metavar="N", min=1, help="Measure acceptance of drafts of N tokens.")] = 4,
    evaluate_every: LookEvery = 100,
    patience: Patience = 5,
    max_length: MaxLength = 1024,
    seed: Seed = 0,
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
    model: Any,
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
