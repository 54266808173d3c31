"""`draftproof audit`: is a decoder exact? One flag chooses how to find out; each way has a module
of its own.

A way says which flags it reads. A flag that the chosen way does not read is refused, so none is
dropped in silence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from draftproof.cli import options
from draftproof.cli.key import KEY_VARIABLE
from draftproof.cli.machine_flags import Device, Dtype, RemoteCode, Threads
from draftproof.errors import UsageError

MODELS = frozenset({"target", "dtype", "device", "threads", "trust_remote_code"})
DRAFTING = frozenset(
    {"draft", "method", "num_speculative_tokens", "speculative_config", "rule", "tree"}
)
SAMPLING = frozenset(
    {*options.LAW_FLAGS, "max_tokens", "seed", "prompts", "workload", "per_workload"}
)

BLACK_BOX = (
    "url",
    "api_key",
    "served_model",
    "control",
    "without_copy",
    "num_texts",
    "size",
    "until_sure",
    "out",
    "html",
)


@dataclass(frozen=True)
class Way:
    """module: whose `run(flags)` finds out and returns the exit code. help: for the refusals.
    reads: the flags it reads beside its own and --json."""

    module: str
    help: str
    reads: frozenset[str]


WAYS: Mapping[str, Way] = {
    "exact": Way(
        "draftproof.cli.audit_exact",
        "--exact proves draftproof's rules, or module:function of yours, by enumeration",
        frozenset({"subject", "rule", "full", "workers"}),
    ),
    "white_box": Way(
        "draftproof.cli.audit_engine",
        "--white-box looks into the rounds of --engine ours or transformers",
        MODELS | DRAFTING | SAMPLING | {"engine", "level"},
    ),
    "greedy": Way(
        "draftproof.cli.audit_greedy",
        "--greedy holds greedy texts of --engine ours or transformers against plain ones",
        MODELS | DRAFTING | SAMPLING - {"temperature", "top_k", "top_p", "min_p"} | {"engine"},
    ),
    "black_box": Way(
        "draftproof.cli.audit_black_box",
        (
            "--black-box scores the texts of a server (--url) or a function by a local copy "
            "of the target"
        ),
        MODELS | SAMPLING | {"subject", "draft", "level", *BLACK_BOX},
    ),
    "self_test": Way(
        "draftproof.cli.audit_self_test",
        "--self-test tries the black box on engines that are known to be exact or faulty",
        frozenset(),
    ),
}
"""The flag that chooses a way -> the way."""

ALL_PROCESSORS = max(1, os.cpu_count() or 1)

Subject = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODULE:NAME]",
        help="With --exact: a rule, a drafter or a step function of yours; nothing proves "
        "draftproof's own rules. "
        "With --black-box: a function (prompt ids, seed) -> ids. MODULE may be a file.py.",
        show_default=False,
    ),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        metavar="",
        help=(
            "Prove it: sum over every outcome of the decode loop on small tables; no model "
            "is loaded."
        ),
    ),
]
WhiteBox = Annotated[
    bool,
    typer.Option(
        "--white-box",
        metavar="",
        help="Test the drafts, acceptances and replacements of an engine's rounds.",
    ),
]
Greedy = Annotated[
    bool,
    typer.Option(
        "--greedy",
        metavar="",
        help="Where a greedy text differs from plain decoding's: a tie, or a fault?",
    ),
]
BlackBox = Annotated[
    bool,
    typer.Option(
        "--black-box",
        metavar="",
        help="Test the texts that a server, or a function of yours, gives back.",
    ),
]
SelfTest = Annotated[
    bool,
    typer.Option(
        "--self-test",
        metavar="",
        help="Try the black box on engines known to be exact or faulty; a minute.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="With --black-box: an OpenAI-compatible server, as http://127.0.0.1:8000.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help=f"What the servers of --url and --control ask for. Default: {KEY_VARIABLE}, if set.",
    ),
]
ServedModel = Annotated[
    str | None,
    typer.Option(
        "--served-model",
        metavar="NAME",
        help="The model's name there. Default: the first it lists.",
    ),
]
Control = Annotated[
    str | None,
    typer.Option(
        "--control",
        metavar="PLACE",
        help=(
            "The same engine without speculation, a URL or module:function: what rounding "
            "alone does."
        ),
    ),
]
WithoutCopy = Annotated[
    bool,
    typer.Option(
        "--without-copy",
        metavar="",
        help="Load no target: compare the texts with those of --control, as strings.",
    ),
]
NumTexts = Annotated[
    int | None,
    typer.Option(
        "--num-texts",
        metavar="N",
        min=1,
        help="Texts of each engine. Default: 64.",
        show_default=False,
    ),
]
Size = Annotated[
    float | None,
    typer.Option(
        "--size",
        metavar="TV",
        min=1e-4,
        max=1.0,
        help=(
            "The bias a token, in total variation, that must be seen for the verdict exact. "
            "Default: 0.05."
        ),
        show_default=False,
    ),
]
UntilSure = Annotated[
    bool,
    typer.Option(
        "--until-sure",
        metavar="",
        help="Go on until it is sure that the engine is not exact, or Ctrl-C.",
    ),
]
OutFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Keep the texts there, and the report; the same command goes on with them.",
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full",
        metavar="",
        help=(
            "With --exact: every combination of rule, drafter and parameters, not only every "
            "pair of them; takes hours."
        ),
    ),
]
Workers = Annotated[
    int,
    typer.Option("--workers", min=1, help="With --exact: how many processes work side by side."),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="NAME", help="What is audited: ours or transformers. Default: ours."
    ),
]
Level = Annotated[
    float,
    typer.Option(
        "--level",
        metavar="P",
        min=1e-12,
        max=0.5,
        help="The chance, at most, that an exact engine is called not exact.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("audit")(audit)


@options.with_flags(options.LAW_FLAGS)
def audit(
    context: typer.Context,
    subject: Subject = None,
    exact: Exact = False,
    white_box: WhiteBox = False,
    greedy: Greedy = False,
    black_box: BlackBox = False,
    self_test: SelfTest = False,
    url: Url = None,
    api_key: Key = None,
    served_model: ServedModel = None,
    control: Control = None,
    without_copy: WithoutCopy = False,
    num_texts: NumTexts = None,
    size: Size = None,
    until_sure: UntilSure = False,
    out: OutFolder = None,
    html: options.Page = None,
    engine: Engine = None,
    level: Level = 1e-3,
    full: Full = False,
    workers: Workers = ALL_PROCESSORS,
    target: options.Target = None,
    draft: options.Draft = None,
    method: options.Method = None,
    num_speculative_tokens: options.Length = None,
    speculative_config: options.Config = None,
    rule: options.RuleName = None,
    tree: options.Tree = None,
    prompts: options.Prompts = None,
    workload: options.Workloads = None,
    per_workload: options.PerWorkload = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=2,
            help="Tokens of each audited text. Default: 64.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", help="Seed of the audited texts. Default: 0.", show_default=False
        ),
    ] = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    threads: Threads = None,
    trust_remote_code: RemoteCode = False,
    as_json: options.Json = False,
    **_: Any,
) -> None:
    """Find out whether a decoder's output law is exactly its target's; exit code 1 when it is
    not."""
    way = chosen(context.params)
    check_read(way, context)
    raise typer.Exit(import_module(WAYS[way].module).run(dict(context.params)))


def chosen(flags: Mapping[str, Any]) -> str:
    """The one way that the flags choose."""
    named = [way for way in WAYS if flags[way]]
    if not named:
        raise UsageError(f"say how to audit: {'; '.join(way.help for way in WAYS.values())}")
    if len(named) > 1:
        raise UsageError(
            f"{' and '.join(map(options.spelled, named))} are different audits: leave "
            "all but one of them out"
        )
    return named[0]


def check_read(way: str, context: typer.Context) -> None:
    """UsageError for a flag on the command line that this way does not read."""
    read = WAYS[way].reads | {way, "as_json"}
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in read and source is not None and source.name == "COMMANDLINE":
            what = repr(context.params[name]) if name == "subject" else _flag(name)
            raise UsageError(
                f"{what} does nothing with {options.spelled(way)}: leave one of them out"
            )


def _flag(name: str) -> str:
    return "-k" if name == "num_speculative_tokens" else options.spelled(name)
