"""The flags of `draftproof train`, and what they may be together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.errors import UsageError

UNROLL, NUM_HEADS, LAYERS, CACHE_GB = 7, 4, 4, 10.0

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FILE",
        help="Prompts, one JSON object a line. Default: a built-in set.",
        show_default=False,
    ),
]
Builtin = Annotated[
    list[str] | None,
    typer.Option(
        "--builtin",
        metavar="KIND",
        help="Built-in prompts beside the file's: chat, code or summary; repeatable.",
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", metavar="DIR", help="Folder to write; the same command goes on where it ended."
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="Take at most N prompts.")
]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", metavar="N", min=1, help="End an answer at N tokens.")
]
MaxPrompt = Annotated[
    int,
    typer.Option(
        "--max-prompt-tokens", metavar="N", min=1, help="Leave prompts of more than N out."
    ),
]
BatchSize = Annotated[
    int, typer.Option("--batch-size", metavar="N", min=1, help="Write N answers side by side.")
]
Temperatures = Annotated[
    list[float] | None,
    typer.Option(
        "--temperature",
        metavar="X",
        min=0,
        help="How random answers are, in turn; repeatable. Default: 0 0.7 0.7 1.",
    ),
]
Part = Annotated[
    str,
    typer.Option(
        "--part",
        metavar="I/N",
        help="Write the I-th of N parts, beside the others' in the same folder.",
    ),
]
HeadData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help=(
            "A folder that `train data` wrote, or a file of prompts to be answered first. "
            "Default: built-in prompts."
        ),
        show_default=False,
    ),
]
Count = typer.Option
Steps = Annotated[
    int, Count("--steps", metavar="N", min=1, help="Train for N steps of the optimiser.")
]
Batch = Annotated[
    int, Count("--batch-size", metavar="N", min=1, help="How many texts each step reads.")
]
Rate = Annotated[
    float,
    Count("--learning-rate", metavar="X", min=0, help="Learning rate of the optimiser, AdamW."),
]
LossName = Annotated[
    str, Count("--loss", metavar="NAME", help="cross_entropy, total_variation or log_acceptance.")
]
LossHeat = Annotated[
    str,
    Count(
        "--loss-temperature",
        metavar="T",
        help=(
            "Temperature of the laws that the loss compares: a number, or own for each "
            "text's, as verification will."
        ),
    ),
]
LookEvery = Annotated[
    int,
    Count(
        "--evaluate-every",
        metavar="N",
        min=1,
        help="Measure acceptance on held-out texts every N steps.",
    ),
]
Patience = Annotated[
    int,
    Count(
        "--patience", metavar="N", min=0, help="Stop after N measurements without gain; 0: never."
    ),
]
MaxLength = Annotated[
    int, Count("--max-length", metavar="N", min=4, help="Cut texts after N tokens.")
]
Unroll = Annotated[
    int | None,
    Count(
        "--unroll",
        metavar="N",
        min=1,
        help=f"Train the head to draft N tokens ahead. Default: {UNROLL}; of medusa one a head.",
    ),
]
EarlyUnroll = Annotated[
    int | None,
    Count(
        "--early-unroll", metavar="N", min=1, help="A smaller --unroll for the first two thirds."
    ),
]
Width = Annotated[
    int | None,
    Count(
        "--intermediate-size",
        metavar="N",
        min=1,
        help="Width of the layer's MLP. Default: the target's.",
    ),
]
Begin = Annotated[
    str | None,
    Count(
        "--begin",
        metavar="HOW",
        help="eagle3's first weights: target (its last layer), random or auto (default).",
    ),
]
DraftVocab = Annotated[
    int | None,
    Count(
        "--draft-vocab-size",
        metavar="N",
        min=1,
        help="eagle3 drafts among N tokens. Default: 4096, or those of --start.",
    ),
]
NumHeads = Annotated[
    int | None,
    Count(
        "--num-heads",
        metavar="N",
        min=1,
        help=f"medusa: heads, one a drafted position. Default: {NUM_HEADS}.",
    ),
]
Seed = Annotated[
    int, Count("--seed", metavar="N", min=0, help="Seed of first weights and of the texts' order.")
]
HiddenLayers = Annotated[
    list[int] | None,
    typer.Option(
        "--hidden-layer",
        metavar="N",
        min=0,
        help="eagle3: a layer of the target that the head reads; repeatable.",
    ),
]
Start = Annotated[
    Path | None,
    typer.Option("--start", metavar="DIR", help="Begin with the trained head in this folder."),
]
AverageStart = Annotated[
    bool,
    typer.Option(
        "--average-start",
        help="End with the mean of the weights of --start and those that were reached.",
    ),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="Keep the target's hidden states here, so that they are computed once.",
    ),
]
CacheGB = Annotated[
    float | None,
    typer.Option(
        "--cache-gb",
        metavar="X",
        min=0,
        help=f"Most GB that the folder of --cache may take. Default: {CACHE_GB:g}.",
    ),
]
Layers = Annotated[
    int | None,
    typer.Option(
        "--layers",
        metavar="N",
        min=1,
        help=f"Begin with N of the target's layers, spread evenly. Default: {LAYERS}.",
    ),
]
StartModel = Annotated[
    str | None,
    typer.Option(
        "--start", metavar="NAME", help="Begin with this model instead of layers of the target."
    ),
]
Length = Annotated[
    int,
    typer.Option("--length", metavar="N", min=1, help="Measure acceptance of drafts of N tokens."),
]

SHAPE = {
    "--draft-vocab-size": ("eagle3",),
    "--num-heads": ("medusa",),
    "--hidden-layer": ("eagle3",),
    "--intermediate-size": ("eagle", "eagle3"),
    "--begin": ("eagle3",),
}
"""Flag -> the methods whose heads it shapes. A head that is gone on with has its shape; only its
draft vocabulary can grow."""


def check_shape(method: str, start: Path | None, given: Sequence[Any]) -> None:
    """given: the values of SHAPE's flags, in its order."""
    for flag, value in zip(SHAPE, given, strict=True):
        if not value:
            continue
        if method not in SHAPE[flag]:
            raise UsageError(
                f"{flag} is for {' and '.join(SHAPE[flag])}; train {method} has no such thing"
            )
        if start is not None and flag != "--draft-vocab-size":
            raise UsageError(
                f"{flag} shapes a fresh head; the one in {start} has its shape: leave "
                f"out {flag} or --start"
            )


def positions(
    method: str, unroll: int | None, early: int | None, num_heads: int | None, start: Path | None
) -> int:
    """How many positions ahead are trained. UsageError where a flag would do nothing."""
    heads = NUM_HEADS if num_heads is None else num_heads
    most = heads if method == "medusa" and start is None else None
    if most is not None and unroll is not None and unroll > most:
        raise UsageError(
            f"--unroll {unroll}: medusa drafts one token a head, and there are {most}; "
            "see --num-heads"
        )
    chosen = unroll if unroll is not None else UNROLL if most is None else most
    if early is not None and early >= chosen:
        raise UsageError(
            f"--early-unroll {early} is no less than --unroll, which is {chosen}: leave it out"
        )
    return chosen


def averaged(wanted: bool, start: Path | None) -> bool:
    """UsageError for a mean with weights that were never trained."""
    if wanted and start is None:
        raise UsageError(
            "--average-start takes the mean with the head that training begins with: add "
            "--start DIR, or leave it out"
        )
    return wanted


def kept_states(cache: Path | None, gigabytes: float | None) -> tuple[Path, float] | None:
    """The folder that the target's hidden states are kept in, and its limit; None for none.
    UsageError: a limit of nothing."""
    if cache is None:
        if gigabytes is not None:
            raise UsageError(
                "--cache-gb is the limit of the folder of --cache: add --cache DIR, or leave it out"
            )
        return None
    return cache, CACHE_GB if gigabytes is None else gigabytes


def loss_heat(text: str, cache: Path | None = None) -> float | None:
    """None for "own"; else a temperature, whose range is checked with the other settings. cache: it
    keeps laws at two only."""
    if text == "own":
        return None
    try:
        heat = float(text)
    except ValueError:
        raise UsageError(
            f"--loss-temperature is {text!r}; allowed: a number above 0, or own"
        ) from None
    if cache is not None and heat != 1.0:
        raise UsageError(
            f"--cache keeps laws at temperature 1 and at each text's own, not at {heat}: "
            "leave out one of the two"
        )
    return heat
