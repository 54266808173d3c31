"""`draftproof serve`: an OpenAI-compatible server over one target (docs/serve.md)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import options
from draftproof.cli.key import KEY_VARIABLE, api_key
from draftproof.cli.machine_flags import flag_of
from draftproof.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from draftproof.decode.decoder import SpeculativeDecoder

SERVER = "Server"
PACKAGES = ("starlette", "uvicorn", "prometheus_client", "pydantic")

Host = Annotated[
    str,
    flag_of(
        SERVER,
        "--host",
        metavar="ADDRESS",
        help="Where to listen; 0.0.0.0 for everybody. Default: 127.0.0.1, this machine alone.",
    ),
]
Port = Annotated[
    int,
    flag_of(
        SERVER, "--port", metavar="N", min=0, max=65535, help="Default: 8000; 0 takes a free one."
    ),
]
Name = Annotated[
    str | None,
    flag_of(
        SERVER,
        "--served-model-name",
        metavar="NAME",
        help="What clients call the model. Default: the target's name.",
    ),
]
Key = Annotated[
    str | None,
    flag_of(
        SERVER,
        "--api-key",
        metavar="KEY",
        help=f"What clients must show. Default: {KEY_VARIABLE}, or nothing where it is not set.",
    ),
]
MaxSeqs = Annotated[
    int,
    flag_of(
        SERVER, "--max-num-seqs", metavar="N", min=1, help="Texts written at a time. Default: 16."
    ),
]
MaxQueue = Annotated[
    int,
    flag_of(
        SERVER,
        "--max-queue",
        metavar="N",
        min=0,
        help="Texts that may wait; a request beyond them is told 429. Default: 256.",
    ),
]
Piece = Annotated[
    int,
    flag_of(
        SERVER,
        "--max-prompt-piece",
        metavar="N",
        min=16,
        help=(
            "Most tokens of long prompts read in one round, so that other texts go on "
            "meanwhile. Default: 512."
        ),
    ),
]
Prefixes = Annotated[
    int,
    flag_of(
        SERVER,
        "--prefix-cache-mb",
        metavar="N",
        min=0,
        help=(
            "Memory for what was read before, so that like beginnings are read once; 0 for "
            "none. Default: 1024."
        ),
    ),
]
MaxBody = Annotated[
    int,
    flag_of(
        SERVER,
        "--max-body-mb",
        metavar="N",
        min=1,
        max=1024,
        help="Longest request taken. Default: 8.",
    ),
]
Timeout = Annotated[
    float | None,
    flag_of(
        SERVER,
        "--request-timeout",
        metavar="SECONDS",
        help="Longest a request may take, waiting included. Default: no limit.",
    ),
]
Parser = Annotated[
    str | None,
    flag_of(
        SERVER,
        "--tool-call-parser",
        metavar="NAME",
        help=(
            "How the model writes calls of tools: hermes or llama3_json. Default: as its "
            "chat template shows."
        ),
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("serve")(serve)


@options.with_flags(options.DRAFT_FLAGS, options.MACHINE_FLAGS)
def serve(
    context: typer.Context,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    served_model_name: Name = None,
    api_key: Key = None,
    max_num_seqs: MaxSeqs = 16,
    max_queue: MaxQueue = 256,
    max_prompt_piece: Piece = 512,
    prefix_cache_mb: Prefixes = 1024,
    max_body_mb: MaxBody = 8,
    request_timeout: Timeout = None,
    tool_call_parser: Parser = None,
    **_: Any,
) -> None:
    """Serve a model to OpenAI's clients until Ctrl-C or SIGTERM; what runs then is finished."""
    execute(context.params)


def execute(flags: Mapping[str, Any]) -> None:
    """Check all flags and the address, load, serve."""
    missing = next((name for name in PACKAGES if find_spec(name) is None), None)
    if missing is not None:
        raise MissingExtraError(missing, "serve")
    from draftproof.cli.generate import load
    from draftproof.serve.server import bind, run

    config = options.speculative_config(flags)
    settings = settings_of(flags)
    with bind(flags["host"], flags["port"]) as bound:
        decoder = load(flags, config)
        from draftproof.serve.app import create_app

        app = create_app(decoder, settings)
        host, port = bound.getsockname()[:2]
        print(
            f"serving {settings.model} at http://{f'[{host}]' if ':' in host else host}:{port} "
            f"({how_it_runs(decoder)})",
            file=sys.stderr,
            flush=True,
        )
        run(app, bound)


def how_it_runs(decoder: SpeculativeDecoder) -> str:
    """What computes, in what, and how requests are drafted unless they say otherwise."""
    from draftproof.decode.ties import dtype_of

    target = decoder.target
    where = f" on {target.device}" if target.device is not None else ""
    method = "no drafts" if decoder.drafter is None else f"method {decoder.drafter.name}"
    return f"{target.engine}, {dtype_of(target)}{where}, {method}"


def settings_of(flags: Mapping[str, Any]) -> Any:
    """`Settings` as the flags say. UsageError for what they cannot be."""
    from draftproof.models.pull import DEFAULT_MODEL
    from draftproof.serve.settings import Settings
    from draftproof.serve.tools import PARSERS

    parser, timeout = flags["tool_call_parser"], flags["request_timeout"]
    if parser is not None and parser not in PARSERS:
        raise UsageError(f"--tool-call-parser is {parser!r}; allowed: {', '.join(PARSERS)}")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise UsageError(f"--request-timeout is {timeout}; allowed: a number of seconds above 0")
    return Settings(
        model=flags["served_model_name"] or flags["target"] or DEFAULT_MODEL,
        api_key=api_key(flags),
        max_num_seqs=flags["max_num_seqs"],
        max_queue=flags["max_queue"],
        prompt_piece=flags["max_prompt_piece"],
        prefix_cache_bytes=flags["prefix_cache_mb"] * 2**20,
        max_body_bytes=flags["max_body_mb"] * 2**20,
        request_timeout=timeout,
        tool_call_parser=parser,
        lossless=flags["lossless"],
    )
