"""`draftproof simulate`: what a draft would bring, from acceptance and cost alone; no model is run.

`batch` (the default) is a roofline model of a real card and models over the batch size;
`generation` plays rounds by chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from draftproof.report.result import Result

BATCH_ONLY = ("batch", "context", "card", "target", "draft", "overhead_ms", "draft_context")
GENERATION_ONLY = (
    "acceptance",
    "draft_ms",
    "target_ms",
    "tokens",
    "simulations",
    "verify_curve",
    "seed",
)


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("simulate")(simulate)


def simulate(
    mode: Annotated[
        str,
        typer.Argument(
            help=(
                "`batch`: speedup on a GPU over the batch size; `generation`: rounds of one "
                "text played by chance."
            )
        ),
    ] = "batch",
    alpha: Annotated[
        list[float] | None,
        typer.Option(help="Share of drafted tokens that are accepted; repeatable."),
    ] = None,
    num_speculative_tokens: Annotated[
        int | None,
        typer.Option(
            "--num-speculative-tokens",
            "-k",
            help="Most tokens drafted at a time. Default: 5; the best one for batch.",
        ),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(help="batch: how many texts are decoded together; repeatable."),
    ] = None,
    context: Annotated[
        list[int] | None, typer.Option(help="batch: tokens each text has so far; repeatable.")
    ] = None,
    card: Annotated[str | None, typer.Option(help="batch: the GPU. Default: H100-SXM.")] = None,
    target: Annotated[
        str | None, typer.Option(help="batch: the target. Default: Llama-3.1-8B.")
    ] = None,
    draft: Annotated[
        str | None, typer.Option(help="batch: the draft model. Default: Llama-3.2-1B.")
    ] = None,
    overhead_ms: Annotated[
        float | None,
        typer.Option(help="batch: fixed milliseconds of a forward pass. Default: 0.1."),
    ] = None,
    draft_context: Annotated[
        int | None,
        typer.Option(
            help="batch: tokens of context that the draft model reads at most. Default: all."
        ),
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(
            help=(
                "generation: position:0.9,0.7, markov:EASY,HARD,STAY or replay:rounds.jsonl, "
                "in place of --alpha."
            )
        ),
    ] = None,
    draft_ms: Annotated[
        float | None, typer.Option(help="generation: milliseconds of a draft step. Default: 5.")
    ] = None,
    target_ms: Annotated[
        float | None,
        typer.Option(
            help="generation: milliseconds of a target pass over one token. Default: 100."
        ),
    ] = None,
    verify_curve: Annotated[
        str | None,
        typer.Option(
            help=(
                "generation: time of target passes by their tokens, as 1:1,4:1.1. Default: "
                "more tokens cost nothing."
            )
        ),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="generation: tokens of a text. Default: 100.")
    ] = None,
    simulations: Annotated[
        int | None, typer.Option(help="generation: how many texts are played. Default: 50.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="generation: seed of all randomness. Default: 0.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Draw the figure into this folder, as PNG and SVG.", file_okay=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Tell what a draft would bring, from acceptance and cost alone."""
    given = {
        key: value
        for key, value in locals().items()
        if key not in ("mode", "out", "json") and value not in (None, [])
    }
    from draftproof.report.figures import check_plotting, save_figure
    from draftproof.report.tables import json_line, print_result

    if out is not None:
        check_plotting()
    result = simulate_result(mode, given)
    print_result(result)
    figures = [] if out is None else save_figure(result.draw, out, result.name)
    for path in figures:
        typer.echo(f"wrote {path}", err=True)
    if json:
        typer.echo(json_line({**result.document(), "figures": [str(path) for path in figures]}))


def simulate_result(mode: str, given: dict[str, Any]) -> Result:
    """The simulation that `mode` names, with the options that were given; one that belongs to the
    other mode is refused."""
    from draftproof.errors import UsageError

    if mode not in ("batch", "generation"):
        raise UsageError(f"there is no simulation {mode!r}; choose batch or generation")
    for key in GENERATION_ONLY if mode == "batch" else BATCH_ONLY:
        if key in given:
            raise UsageError(f"--{key.replace('_', '-')} does not belong to `simulate {mode}`")
    return _batch(given) if mode == "batch" else _generation(given)


def _batch(given: dict[str, Any]) -> Result:
    from draftproof.core.formulas import checked_length
    from draftproof.simulate.batch import OVERHEAD_SECONDS, BatchModel
    from draftproof.simulate.curves import BATCHES, CONTEXTS, batch_result
    from draftproof.simulate.presets import card, model

    if "draft_context" in given:
        checked_length("draft_context", given["draft_context"], least=1)
    setting = BatchModel(
        card(given.get("card", "H100-SXM")),
        model(given.get("target", "Llama-3.1-8B")),
        model(given.get("draft", "Llama-3.2-1B")),
        given["overhead_ms"] / 1e3 if "overhead_ms" in given else OVERHEAD_SECONDS,
        given.get("draft_context"),
    )
    grid = given.get("alpha", [0.8]), given.get("batch", BATCHES), given.get("context", CONTEXTS)
    return batch_result(setting, *grid, given.get("num_speculative_tokens"))


def _generation(given: dict[str, Any]) -> Result:
    from draftproof.costs.verify_curve import parse_curve
    from draftproof.errors import UsageError
    from draftproof.simulate.curves import generation_result, process_result
    from draftproof.simulate.sweep import ACCEPTANCE_RATES

    length = given.get("num_speculative_tokens")
    curve: Any = (
        parse_curve(given["verify_curve"], "--verify-curve") if "verify_curve" in given else None
    )
    common = (
        given.get("tokens", 100),
        given.get("simulations", 50),
        given.get("draft_ms", 5.0),
        given.get("target_ms", 100.0),
        curve,
        given.get("seed", 0),
    )
    if "acceptance" not in given:
        return generation_result(
            given.get("alpha", ACCEPTANCE_RATES), 5 if length is None else length, *common
        )
    if "alpha" in given:
        raise UsageError("--acceptance takes the place of --alpha; give one of them")
    from draftproof.simulate.records import parse_acceptance

    process, longest = parse_acceptance(given["acceptance"])
    lengths = range(1, min(8, longest) + 1) if length is None else (length,)
    return process_result(process, given["acceptance"], lengths, *common)
