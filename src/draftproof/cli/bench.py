"""`draftproof bench`: several ways of generating on the same prompts, interleaved, with honest figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
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
        help="ngram:8, draft_model:4:block or :2,2,1, hf-plain, hf-assisted:4, hf-lookup:10, JSON or a URL; repeatable.",
        show_default=False,
    ),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        "--prompts", "--file", metavar="FILE", help="Text (--- between prompts), JSON lines, or Spec-Bench's questions."
    ),
]
Workloads = Annotated[list[str] | None, typer.Option("--workload", metavar="NAME", help="Only these workloads; repeatable.")]
PerWorkload = Annotated[int | None, typer.Option("--per-workload", metavar="N", min=1, help="The first N prompts of each.")]
Turns = Annotated[
    str,
    typer.Option("--turns", metavar="WHICH", help="first or all turns of conversations; plain decoding writes the history."),
]
Repeat = Annotated[int, typer.Option("--repeat", metavar="N", min=1, help="Repetitions of every prompt.")]
Synthetic = Annotated[
    str | None, typer.Option("--synthetic-alpha", metavar="RATES", help="Acceptance by chance, as 0.8 or 0.9,0.7; lossy.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the result, raw data included, to this file.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page.")]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("bench")(bench)


@options.with_flags(options.LAW_FLAGS, options.END_FLAGS, options.MACHINE_FLAGS)
def bench(
    context: typer.Context,
    arm: Arms = None,
    prompts: Prompts = None,
    workload: Workloads = None,
    per_workload: PerWorkload = None,
    turns: Turns = "all",
    repeat: Repeat = 2,
    synthetic_alpha: Synthetic = None,
    out: Out = None,
    html: Html = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="End with one JSON document on the last line.")] = False,
    target: options.Target = None,
    draft: options.Draft = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos/--heed-eos", help="Equal token counts, or as the model ends.")
    ] = True,
    **_: Any,
) -> None:
    """Measure ways of generating against plain decoding, on the same prompts, interleaved."""
    execute(context.params)


def execute(flags: Mapping[str, Any]) -> None:
    """Check all flags, load, measure, show and write."""
    from draftproof.bench.specs import parse_spec
    from draftproof.bench.synthetic import parse_rates
    from draftproof.bench.turns import check_turns
    from draftproof.report.page import check_writable

    rates = None if flags["synthetic_alpha"] is None else parse_rates(flags["synthetic_alpha"])
    words = flags["arm"] or (["draft_model"] if flags["draft"] else [options.DEFAULT_METHOD])
    specs = [parse_spec(word, flags["draft"]) for word in words]
    if flags["draft"] and not any(spec.takes_draft for spec in specs):
        raise UsageError("--draft does nothing without an arm that uses it: add --arm draft_model:4, for example")
    check_turns(flags["turns"])
    params = sampling(flags, DEFAULT_TOKENS)
    items = items_of(flags)
    for name in ("out", "html"):
        if flags[name] is not None:
            check_writable(flags[name])
    document = run(flags, specs, rates, params, items)
    show(document, flags)
    if any(flag["kind"] == "interrupted" for flag in document["flags"]):
        raise KeyboardInterrupt


def sampling(flags: Mapping[str, Any], tokens: int) -> SamplingParams:
    """The sampling parameters of plan and bench; greedy unless a temperature is given. UsageError for what would do nothing."""
    from draftproof.core.params import SamplingParams

    given = options.sampling_overrides(flags, tokens)
    defaults = {"temperature": 0.0, "seed": DEFAULT_SEED}
    params = SamplingParams.from_dict(defaults | given | {"ignore_eos": flags.get("ignore_eos", True)})
    options.check_effect(given, params)
    return params


def items_of(flags: Mapping[str, Any]) -> list[Any]:
    """The prompts that the flags choose."""
    from draftproof.bench.workload import builtin_items, choose, read_items

    if flags["prompts"] is None:
        return choose(builtin_items(flags["workload"] or ()), flags["per_workload"])
    return choose(read_items(flags["prompts"]), flags["per_workload"], flags["workload"] or ())


def load_target(flags: Mapping[str, Any]) -> tuple[Any, Any]:
    """The target, and a function that loads draft models, each once."""
    from functools import cache

    import torch

    from draftproof.models.load import load_model
    from draftproof.models.pull import DEFAULT_MODEL

    if flags["threads"] is not None:
        torch.set_num_threads(flags["threads"])
    target = load_model(flags["target"] or DEFAULT_MODEL, dtype=flags["dtype"], device=flags["device"])
    if target.tokenizer is None:
        raise UsageError(f"{target.name} has no tokenizer, so it cannot read prompts of text; add one to its folder")

    @cache
    def drafts(name: str) -> Any:
        return load_model(name, dtype=flags["dtype"], device=flags["device"])

    return target, drafts


def run(flags: Mapping[str, Any], specs: Any, rates: Any, params: Any, items: Any) -> dict[str, Any]:
    """Load and measure; the result document."""
    from draftproof.bench.provenance import model_hash, provenance
    from draftproof.bench.run import measure
    from draftproof.bench.specs import build_arms
    from draftproof.bench.summary import document
    from draftproof.bench.turns import with_later_turns
    from draftproof.bench.workload import encode
    from draftproof.cli.progress import telling

    target, drafts = load_target(flags)
    prompts = encode(items, target.tokenizer, target.vocab_size, target.max_length, params.max_tokens)
    arms, decoder = build_arms(specs, target, drafts, flags["draft"], rates, params.temperature == 0)
    with telling() as progress:
        if flags["turns"] == "all":
            prompts = with_later_turns(prompts, target, params, progress)
        measurement = measure(arms, prompts, params, flags["repeat"], progress=progress)
    hashes = {"target": model_hash(target)}
    if flags["draft"]:
        hashes["draft"] = model_hash(drafts(flags["draft"]))
    where = provenance(target, seed=params.seed) | {"model_hashes": hashes, "draft": flags["draft"]}
    return document(measurement, decoder, where)


def show(document: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
    """Table, notes, files, and the JSON line without the raw runs' rounds."""
    from draftproof.report.page import comparison_page, write_json, write_page
    from draftproof.report.tables import json_line, print_result

    for result in sections_of(document):
        print_result(result)
    if flags["out"] is not None:
        write_json(flags["out"], document)
    if flags["html"] is not None:
        write_page(flags["html"], comparison_page([(str(flags["html"].stem), document)], sections_of))
    if flags["as_json"]:
        typer.echo(json_line(document))


def sections_of(document: Mapping[str, Any]) -> list[Any]:
    """The results to put on a page for one document."""
    from draftproof.bench.table import acceptance_result, bench_result, task_result

    made = (bench_result(document), acceptance_result(document), task_result(document))
    return [result for result in made if result is not None]
