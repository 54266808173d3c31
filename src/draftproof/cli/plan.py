"""`draftproof plan`: will speculation pay here, with which drafter, at which length; without running it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli import options
from draftproof.errors import UsageError

DEFAULT_TOKENS = 64
WHAT_IF = ("cost_ratio", "batch", "context", "card", "target_shape", "draft_shape", "verify_curve")
MODEL_ONLY = ("target", "draft", "method", "prompts", "workload", "per_workload", "temperature", "top_k", "top_p", "min_p")

Drafts = Annotated[list[str] | None, typer.Option("--draft", metavar="D", help="A draft model to plan with; repeatable.")]
Methods = Annotated[list[str] | None, typer.Option("--method", metavar="NAME", help="A drafter without a model; repeatable.")]
Lengths = Annotated[list[int] | None, typer.Option("-k", metavar="N", min=1, max=32, help="A draft length; repeatable.")]
Prompts = Annotated[
    Path | None,
    typer.Option(
        "--prompts", "--file", metavar="FILE", help="Text (--- between prompts), JSON lines, or Spec-Bench's questions."
    ),
]
Workloads = Annotated[list[str] | None, typer.Option("--workload", metavar="NAME", help="Only these workloads; repeatable.")]
PerWorkload = Annotated[int | None, typer.Option("--per-workload", metavar="N", min=1, help="The first N prompts of each.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the JSON document to this file.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page with the plots.")]
PANEL = "What if (no model is loaded)"


def _what_if(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=PANEL, show_default=False, **more)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("plan")(plan)


def plan(
    context: typer.Context,
    target: options.Target = None,
    draft: Drafts = None,
    method: Methods = None,
    num_speculative_tokens: Lengths = None,
    prompts: Prompts = None,
    workload: Workloads = None,
    per_workload: PerWorkload = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    max_tokens: options.MaxTokens = None,
    seed: options.Seed = None,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    threads: options.Threads = None,
    out: Out = None,
    html: Html = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="End with one JSON document on the last line.")] = False,
    alpha: Annotated[float | None, _what_if("--alpha", help="Acceptance rate.")] = None,
    cost_ratio: Annotated[float | None, _what_if("--cost-ratio", help="Draft step over target step.")] = None,
    batch: Annotated[int | None, _what_if("--batch", min=1, help="Sequences at once, for --card.")] = None,
    context_tokens: Annotated[int | None, _what_if("--context", min=1, help="Tokens of context, for --card.")] = None,
    card: Annotated[str | None, _what_if("--card", help="Preset card, as H100-SXM; see simulate.")] = None,
    target_shape: Annotated[str | None, _what_if("--target-shape", help="Preset target, for --card.")] = None,
    draft_shape: Annotated[str | None, _what_if("--draft-shape", help="Preset draft, for --card.")] = None,
    verify_curve: Annotated[str | None, _what_if("--verify-curve", help="tokens:time of target passes, as 1:1,4:1.1.")] = None,
) -> None:
    """Foretell whether speculation pays, with which drafter and which draft length."""
    flags = dict(context.params)
    flags["context"] = flags.pop("context_tokens")
    execute(flags)


def execute(flags: Mapping[str, Any]) -> None:
    """Check all flags, plan, show and write."""
    from draftproof.report.page import check_writable

    for name in ("out", "html"):
        if flags[name] is not None:
            check_writable(flags[name])
    if flags["alpha"] is not None:
        for name in MODEL_ONLY:
            if flags[name] not in (None, [], ()):
                raise UsageError(f"{options.spelled(name)} needs a model, and --alpha asks without one: leave one of them out")
        show(_from_numbers(flags), flags)
        return
    for name in WHAT_IF:
        if flags[name] is not None:
            raise UsageError(f"{options.spelled(name)} belongs to a plan without models: add --alpha")
    show(_from_models(flags), flags)


def _from_numbers(flags: Mapping[str, Any]) -> dict[str, Any]:
    from draftproof.cli.simulate import _verify_curve
    from draftproof.plan.plan import LENGTHS
    from draftproof.plan.whatif import CONTEXT, what_if

    for name in ("batch", "context", "target_shape", "draft_shape"):
        if flags[name] is not None and flags["card"] is None:
            raise UsageError(f"{options.spelled(name)} describes a --card: add one, as --card H100-SXM")
    if flags["card"] is not None and flags["verify_curve"] is not None:
        raise UsageError("--card and --verify-curve both say what verification costs: leave one of them out")
    shapes = {name: flags[name] for name in ("target_shape", "draft_shape") if flags[name] is not None}
    return what_if(
        flags["alpha"],
        flags["cost_ratio"],
        flags["num_speculative_tokens"] or LENGTHS,
        batch=flags["batch"] or 1,
        context=flags["context"] or CONTEXT,
        card_name=flags["card"],
        curve=_verify_curve(flags["verify_curve"]),
        **shapes,
    )


def configs(flags: Mapping[str, Any]) -> list[Any]:
    """The drafters asked for, checked before anything loads; `ngram` if none is named."""
    from draftproof.decode.config import SpeculativeConfig

    drafts, methods = flags["draft"] or [], flags["method"] or []
    found = [SpeculativeConfig.from_dict({"method": "draft_model", "model": name}) for name in dict.fromkeys(drafts)]
    for method in dict.fromkeys(methods):
        if method == "draft_model" and drafts:
            continue
        if method != "none":  # plain decoding is what everything is compared with
            found.append(SpeculativeConfig.from_dict({"method": method}))
    return found or [SpeculativeConfig.from_dict({"method": options.DEFAULT_METHOD})]


def _from_models(flags: Mapping[str, Any]) -> dict[str, Any]:
    from draftproof.bench.provenance import model_hash, provenance
    from draftproof.bench.workload import encode
    from draftproof.cli.bench import items_of, load_target, sampling
    from draftproof.cli.progress import telling
    from draftproof.plan.document import document
    from draftproof.plan.plan import LENGTHS, Candidate, make_plan

    asked = configs(flags)
    params = sampling({**flags, "ignore_eos": False}, DEFAULT_TOKENS)
    items = items_of(flags)
    target, drafts = load_target(flags)
    prompts = encode(items, target.tokenizer, target.vocab_size, target.max_length, params.max_tokens or 0)
    candidates = [Candidate(config, drafts(config.model) if config.model else None) for config in asked]
    with telling() as progress:
        made = make_plan(target, candidates, prompts, params, flags["num_speculative_tokens"] or LENGTHS, progress=progress)
    hashes = {"target": model_hash(target)} | {c.name: model_hash(c.draft) for c in candidates if c.draft is not None}
    return document(made, provenance(target, seed=params.seed) | {"model_hashes": hashes})


def show(data: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
    """Table, notes, the configuration, files, and the JSON line."""
    import json

    from draftproof.plan.document import plan_result, sections
    from draftproof.report.page import comparison_page, write_json, write_page
    from draftproof.report.tables import json_line, print_result

    print_result(plan_result(data))
    if data["speculative_config"] is not None:
        typer.echo(f"speculative_config: {json.dumps(data['speculative_config'])}")
    if flags["out"] is not None:
        write_json(flags["out"], data)
    if flags["html"] is not None:
        write_page(flags["html"], comparison_page([("plan", data)], sections))
    if flags["as_json"]:
        typer.echo(json_line(data))
