"""`draftproof plan`: will speculation pay here, with which drafter, at which length; without
running it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from draftproof.cli import options
from draftproof.errors import UsageError

DEFAULT_TOKENS = 64
WHAT_IF = ("cost_ratio", "context", "card", "target_shape", "draft_shape", "verify_curve")
MODEL_ONLY = (
    *(
        "target",
        "draft",
        "method",
        "speculative_config",
        "rule",
        "tree",
        "answers",
        "prompts",
        "workload",
        "per_workload",
        "turns",
    ),
    *options.LAW_FLAGS,
    *options.END_FLAGS,
)

Drafts = Annotated[
    list[str] | None,
    typer.Option(
        "--draft",
        metavar="D",
        help="A draft model to foretell: hub id, folder or .gguf file; repeatable.",
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help="A drafter without a draft model to predict, as ngram, suffix or auto; "
        "repeatable. Default: what generate "
        "drafts with.",
    ),
]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--speculative-config",
        metavar="JSON",
        help="A drafter to foretell as one JSON object with vLLM's keys; repeatable.",
    ),
]
Rule = Annotated[
    str | None,
    typer.Option(
        "--rule",
        metavar="NAME",
        help=(
            "How drafts of --draft and --method are accepted or rejected (docs/rules.md). "
            "Default: as fits the method."
        ),
    ),
]
Trees = Annotated[
    list[str] | None,
    typer.Option(
        "--tree",
        metavar="SHAPE",
        help=(
            "Foretell a tree of drafts too: how many follow each token, level by level, as "
            '"2,2,1"; or best; repeatable.'
        ),
    ),
]
Answers = Annotated[
    int | None,
    typer.Option(
        "--answers",
        metavar="N",
        min=1,
        help=(
            "How many texts the target writes for each prompt. Default: 1 at temperature 0, else 2."
        ),
    ),
]
Lengths = Annotated[
    list[int] | None,
    typer.Option(
        "-k",
        metavar="N",
        min=1,
        max=32,
        help="A draft length to foretell; repeatable. Default: 1 to 6, 8 and 12.",
    ),
]
Batch = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="N,...",
        help=(
            "How many texts are decoded together; of several, as 1,2,4,8, each gets its own "
            "draft length. Default: 1."
        ),
        show_default=False,
    ),
]
Turns = Annotated[
    str | None,
    typer.Option(
        "--turns",
        metavar="WHICH",
        help=(
            "Of conversations, ask the first or all turns; plain decoding answers the "
            "earlier ones. Default: all."
        ),
        show_default=False,
    ),
]
PANEL = "What if (no model is loaded)"


def _what_if(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=PANEL, show_default=False, **more)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("plan")(plan)


@options.with_flags(options.LAW_FLAGS, options.END_FLAGS, options.MACHINE_FLAGS)
def plan(
    context: typer.Context,
    target: options.Target = None,
    draft: Drafts = None,
    method: Methods = None,
    speculative_config: Configs = None,
    num_speculative_tokens: Lengths = None,
    rule: Rule = None,
    tree: Trees = None,
    batch: Batch = None,
    prompts: options.Prompts = None,
    workload: options.Workloads = None,
    per_workload: options.PerWorkload = None,
    turns: Turns = None,
    answers: Answers = None,
    out: options.ResultFile = None,
    html: options.Page = None,
    as_json: options.Json = False,
    alpha: Annotated[
        float | None,
        _what_if(
            "--alpha", help="Share of drafted tokens that are accepted; asks without any model."
        ),
    ] = None,
    cost_ratio: Annotated[
        float | None,
        _what_if(
            "--cost-ratio",
            help="Time of a draft step over that of a target step. Default: 0, or the card's.",
        ),
    ] = None,
    context_tokens: Annotated[
        int | None,
        _what_if(
            "--context", min=1, help="Tokens each text has so far, for --card. Default: 1024."
        ),
    ] = None,
    card: Annotated[
        str | None,
        _what_if(
            "--card",
            help=(
                "Reckon costs for a GPU, as H100-SXM, RTX-4090 or T4 (draftproof simulate "
                "has them too)."
            ),
        ),
    ] = None,
    target_shape: Annotated[
        str | None,
        _what_if("--target-shape", help="Size of the target, for --card. Default: Llama-3.1-8B."),
    ] = None,
    draft_shape: Annotated[
        str | None,
        _what_if(
            "--draft-shape", help="Size of the draft model, for --card. Default: Llama-3.2-1B."
        ),
    ] = None,
    verify_curve: Annotated[
        str | None,
        _what_if("--verify-curve", help="Time of target passes by their tokens, as 1:1,4:1.1."),
    ] = None,
    **_: Any,
) -> None:
    """Foretell whether speculation pays, with which drafter and which draft length."""
    flags = dict(context.params)
    flags["context"] = flags.pop("context_tokens")
    execute(flags)


def execute(flags: Mapping[str, Any]) -> None:
    """Check all flags, plan, show and write."""
    options.check_files(flags)
    if flags["alpha"] is not None:
        for name in MODEL_ONLY:
            if flags[name] not in (None, [], ()):
                raise UsageError(
                    f"{options.spelled(name)} needs a model, and --alpha asks without "
                    "one: leave one of them out"
                )
        for name in options.MACHINE_FLAGS:
            if flags[name] not in (None, "auto", False):
                raise UsageError(
                    f"{options.spelled(name)} says how a model runs, and --alpha asks "
                    "without one: leave it out"
                )
        show(_from_numbers(flags), flags)
        return
    for name in WHAT_IF:
        if flags[name] is not None:
            raise UsageError(
                f"{options.spelled(name)} belongs to a plan without models: add --alpha"
            )
    try:
        document = _from_models(flags)
    except KeyboardInterrupt:
        print(
            (
                "draftproof: interrupted before all was timed, so nothing is foretold and "
                "nothing was written"
            ),
            file=sys.stderr,
        )
        raise
    show(document, flags)


def _from_numbers(flags: Mapping[str, Any]) -> dict[str, Any]:
    from draftproof.costs.verify_curve import parse_curve
    from draftproof.plan.plan import LENGTHS
    from draftproof.plan.whatif import CONTEXT, what_if

    for name in ("batch", "context", "target_shape", "draft_shape"):
        if flags[name] is not None and flags["card"] is None:
            raise UsageError(
                f"{options.spelled(name)} describes a --card: add one, as --card H100-SXM"
            )
    if flags["card"] is not None and flags["verify_curve"] is not None:
        raise UsageError(
            "--card and --verify-curve both say what verification costs: leave one of them out"
        )
    if flags["draft_shape"] is not None and flags["cost_ratio"] is not None:
        raise UsageError(
            "--draft-shape and --cost-ratio both say what a draft step costs: leave one of them out"
        )
    shapes = {
        name: flags[name] for name in ("target_shape", "draft_shape") if flags[name] is not None
    }
    return what_if(
        flags["alpha"],
        flags["cost_ratio"],
        flags["num_speculative_tokens"] or LENGTHS,
        batch=_sizes(flags),
        context=flags["context"] or CONTEXT,
        card_name=flags["card"],
        curve=None
        if flags["verify_curve"] is None
        else parse_curve(flags["verify_curve"], "--verify-curve"),
        **shapes,
    )


def _sizes(flags: Mapping[str, Any]) -> tuple[int, ...]:
    from draftproof.plan.schedule import parse_batch_sizes

    return parse_batch_sizes(flags["batch"] or "1")


def configs(flags: Mapping[str, Any]) -> list[Any]:
    """The drafters asked for, checked before anything loads; if none is named, what `generate`
    drafts with."""
    from draftproof.decode.config import SpeculativeConfig
    from draftproof.drafters.registry import METHODS
    from draftproof.plan.candidate import check_config

    rule = {} if flags["rule"] is None else {"rule": flags["rule"]}
    if rule and flags["speculative_config"] and not (flags["draft"] or flags["method"]):
        raise UsageError(
            "--rule is of --draft and --method drafters: name the rule in --speculative-config"
        )
    drafts, methods = flags["draft"] or [], flags["method"] or []
    given = [{"method": "draft_model", "model": name} | rule for name in dict.fromkeys(drafts)]
    for name in dict.fromkeys(methods):
        modelled = name in METHODS and METHODS[name].model == "draft"
        # plain decoding is what everything is compared with
        if name != "none" and not (modelled and drafts):
            given.append({"method": name} | rule)
    if not given and methods and not flags["speculative_config"]:
        raise UsageError(
            "--method none drafts nothing, so there is nothing to foretell: name a "
            "drafter, or leave it out"
        )
    given += [
        options.parse_json("--speculative-config", text)
        for text in flags["speculative_config"] or ()
    ]
    found: list[SpeculativeConfig] = []
    for config in map(SpeculativeConfig.from_dict, given or [_usual(flags) | rule]):
        if all(_drafter(config) != _drafter(other) for other in found):
            found.append(config)
    if any(config.method == "none" or config.num_speculative_tokens == 0 for config in found):
        raise UsageError(
            "--speculative-config names no method, or a length of 0, so nothing would be drafted"
        )
    for config in found:
        check_config(config)
    if flags["num_speculative_tokens"] and all(config.spec.adapts for config in found):
        raise UsageError(
            "-k is a draft length, and auto chooses its own in every round: leave one of them out"
        )
    if (
        flags["num_speculative_tokens"]
        and all(config.shape is not None for config in found)
        and not flags["tree"]
    ):
        raise UsageError(
            "-k is the length of a chain, and all drafters have trees: leave one of them out"
        )
    return found


def _usual(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What `generate` drafts with; for what `auto` does not take, prompt lookup, one of its
    drafters."""
    fixed = (
        flags["rule"]
        or flags["tree"]
        or flags["num_speculative_tokens"]
        or flags["batch"] not in (None, "1")
    )
    return {"method": options.DEFAULT_METHOD} if fixed else options.usual_method(flags["target"])


def _drafter(config: Any) -> dict[str, Any]:
    """What a configuration says but for the draft length: all lengths are foretold of one
    drafter."""
    return {
        key: value for key, value in config.as_dict().items() if key != "num_speculative_tokens"
    }


def lengths_of(flags: Mapping[str, Any]) -> list[int]:
    """The draft lengths to foretell: those of -k, or a range of them; and what configurations name
    themselves."""
    from draftproof.plan.plan import LENGTHS

    whole = [
        options.parse_json("--speculative-config", text)
        for text in flags["speculative_config"] or ()
    ]
    named = [config.get("num_speculative_tokens", -1) for config in whole if "tree" not in config]
    return sorted({*(flags["num_speculative_tokens"] or LENGTHS), *(k for k in named if k > 0)})


def _check_shapes(flags: Mapping[str, Any], asked: Sequence[Any]) -> None:
    from draftproof.core.tree import TreeShape
    from draftproof.plan.candidate import BEST
    from draftproof.plan.whole import takes_tree

    if flags["tree"] and not any(map(takes_tree, asked)):
        raise UsageError(
            "--tree is for drafters that take a shape, and none of these does: leave it out"
        )
    for shape in flags["tree"] or ():
        if shape != BEST:
            TreeShape.parse(shape)


def _from_models(flags: Mapping[str, Any]) -> dict[str, Any]:
    from draftproof.cli.bench import items_of, sampling
    from draftproof.cli.loading import load_target
    from draftproof.cli.progress import telling
    from draftproof.plan.whole import check_asked, plan_speculation
    from draftproof.workloads.prompt_files import encode

    asked = configs(flags)
    _check_shapes(flags, asked)
    sizes, lengths, turns = _sizes(flags), lengths_of(flags), flags["turns"] or "all"
    params = sampling({**flags, "ignore_eos": False}, DEFAULT_TOKENS)
    items = items_of(flags)
    check_asked(asked, items, lengths, sizes, flags["answers"], turns)
    target, drafts = load_target(flags, asked)
    prompts = encode(
        items, target.tokenizer, target.vocab_size, target.max_length, params.max_tokens or 0
    )
    with telling() as progress:
        return plan_speculation(
            *(target, asked, prompts, params),
            lengths=lengths,
            trees=flags["tree"] or (),
            batch=sizes,
            answers=flags["answers"],
            turns=turns,
            drafts=drafts,
            progress=progress,
        )


def show(data: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
    """Table, notes, the configuration, files, and the JSON line."""
    import json

    from draftproof.plan.document import batch_result, plan_result, sections
    from draftproof.report.page import comparison_page, write_json, write_page
    from draftproof.report.tables import json_line, print_result

    print_result(plan_result(data))
    if data["by_batch"] is not None:
        print_result(batch_result(data))
    if data["speculative_config"] is not None:
        typer.echo(f"speculative_config: {json.dumps(data['speculative_config'])}")
    if flags["out"] is not None:
        write_json(flags["out"], data)
    if flags["html"] is not None:
        write_page(flags["html"], comparison_page([("plan", data)], sections))
    if flags["as_json"]:
        typer.echo(json_line(data))
