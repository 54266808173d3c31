"""`draftproof bench`: several ways of generating on the same prompts, interleaved, with honest
figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import options
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from draftproof.core.params import SamplingParams

DEFAULT_TOKENS = 128
DEFAULT_SEED = 0

Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        metavar="ARM",
        help="A way to generate: METHOD:LENGTH[:RULE] or METHOD:TREE, as ngram:8 or "
        "draft_model:2,2,1; transformers' "
        "hf-plain, hf-assisted:4 or hf-lookup:10; a JSON configuration; a server's URL. "
        "Repeatable.",
        show_default=False,
    ),
]
Turns = Annotated[
    str,
    typer.Option(
        "--turns",
        metavar="WHICH",
        help=(
            "Of conversations, ask the first or all turns; plain decoding answers the earlier ones."
        ),
    ),
]
Repeat = Annotated[
    int,
    typer.Option(
        "--repeat", metavar="N", min=1, help="How often every prompt runs through every arm."
    ),
]
Synthetic = Annotated[
    str | None,
    typer.Option(
        "--synthetic-alpha",
        metavar="RATES",
        help=(
            "Accept drafts by chance, at 0.8 or by position 0.9,0.7: the costs of a draft "
            "yet to be made; worthless text."
        ),
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("bench")(bench)


@options.with_flags(options.LAW_FLAGS, options.END_FLAGS, options.MACHINE_FLAGS)
def bench(
    context: typer.Context,
    arm: Arms = None,
    prompts: options.Prompts = None,
    workload: options.Workloads = None,
    per_workload: options.PerWorkload = None,
    turns: Turns = "all",
    repeat: Repeat = 2,
    synthetic_alpha: Synthetic = None,
    out: options.ResultFile = None,
    html: options.Page = None,
    as_json: options.Json = False,
    target: options.Target = None,
    draft: options.Draft = None,
    ignore_eos: Annotated[
        bool,
        typer.Option(
            "--ignore-eos/--heed-eos",
            help=(
                "Go on to --max-tokens, so that all arms write as much; or end where the "
                "model does."
            ),
        ),
    ] = True,
    **_: Any,
) -> None:
    """Measure ways of generating against plain decoding, on the same prompts, interleaved."""
    execute(context.params)


def execute(flags: Mapping[str, Any]) -> None:
    """Check all flags, load, measure, show and write."""
    from draftproof.bench.specs import check_specs
    from draftproof.bench.synthetic import parse_rates
    from draftproof.bench.whole import specs_of
    from draftproof.workloads.conversations import check_turns

    rates = None if flags["synthetic_alpha"] is None else parse_rates(flags["synthetic_alpha"])
    words = flags["arm"] or (["draft_model"] if flags["draft"] else [options.DEFAULT_METHOD])
    specs = specs_of(words, flags["draft"])
    if flags["draft"] and not any(spec.takes_draft(flags["draft"]) for spec in specs):
        raise UsageError(
            "--draft does nothing without an arm that uses it: add --arm draft_model:4, for example"
        )
    check_turns(flags["turns"])
    params = sampling(flags, DEFAULT_TOKENS)
    check_specs(specs, params, rates)
    items = items_of(flags)
    options.check_files(flags)
    document, ended_by = run(flags, specs, rates, params, items)
    show(document, flags)
    if ended_by is not None:
        raise ended_by


def sampling(flags: Mapping[str, Any], tokens: int) -> SamplingParams:
    """The sampling parameters of plan and bench; greedy unless a temperature is given. UsageError
    for what would do nothing."""
    from draftproof.core.params import SamplingParams

    given = options.sampling_overrides(flags, tokens)
    defaults = {"temperature": 0.0, "seed": DEFAULT_SEED}
    params = SamplingParams.from_dict(
        defaults | given | {"ignore_eos": flags.get("ignore_eos", True)}
    )
    options.check_effect(given, params)
    return params


def items_of(flags: Mapping[str, Any]) -> list[Any]:
    """The prompts that the flags choose."""
    from draftproof.workloads.prompt_files import builtin_items, choose, read_items

    if flags["prompts"] is None:
        return choose(builtin_items(flags["workload"] or ()), flags["per_workload"])
    return choose(read_items(flags["prompts"]), flags["per_workload"], flags["workload"] or ())


def run(
    flags: Mapping[str, Any], specs: Any, rates: Any, params: Any, items: Any
) -> tuple[dict[str, Any], BaseException | None]:
    """Load and measure; the result document, and what ended the measurement early."""
    from draftproof.bench.whole import benchmark
    from draftproof.cli.loading import load_target
    from draftproof.cli.progress import telling
    from draftproof.workloads.prompt_files import encode

    target, drafts = load_target(flags, configs_of(specs, flags["draft"]))
    prompts = encode(
        items, target.tokenizer, target.vocab_size, target.max_length, params.max_tokens
    )
    with telling() as progress:
        return benchmark(
            *(target, specs, prompts, params),
            draft=flags["draft"],
            drafts=drafts,
            synthetic_alpha=rates,
            repeat=flags["repeat"],
            turns=flags["turns"],
            progress=progress,
        )


def configs_of(specs: Iterable[Any], draft: str | None) -> list[Any]:
    """The configurations of all arms that draft; transformers' assisted one as a draft model of
    ours."""
    from draftproof.decode.config import SpeculativeConfig

    assisted = {"method": "draft_model", "model": draft}
    given = (spec.config or (assisted if spec.kind == "hf-assisted" else None) for spec in specs)
    return [SpeculativeConfig.from_dict(config) for config in given if config is not None]


def show(document: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
    """Table, notes, files, and the JSON line without the raw runs' rounds."""
    from draftproof.bench.table import sections
    from draftproof.report.page import comparison_page, write_json, write_page
    from draftproof.report.tables import json_line, print_result

    for result in sections(document):
        print_result(result)
    if flags["out"] is not None:
        write_json(flags["out"], document)
    if flags["html"] is not None:
        write_page(flags["html"], comparison_page([(str(flags["html"].stem), document)], sections))
    if flags["as_json"]:
        typer.echo(json_line(document))
