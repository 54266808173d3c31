"""Flags that say which model writes, and how and where models run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from draftproof.cli.sampling_flags import Flags

MACHINE = "Model and machine"


def flag_of(panel: str, *names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


Target = Annotated[
    str | None,
    flag_of(
        MACHINE,
        "--target",
        metavar="M",
        help=(
            "The model that writes: hub id, folder or .gguf file. Default: the model of "
            "`draftproof pull`."
        ),
    ),
]
Dtype = Annotated[
    str,
    flag_of(
        MACHINE,
        "--dtype",
        metavar="NAME",
        help="Type of the weights: auto, bfloat16, float16, float32 or float64. Default: auto.",
    ),
]
Device = Annotated[
    str,
    flag_of(
        MACHINE,
        "--device",
        metavar="NAME",
        help="Where models run: auto, cpu, cuda or cuda:N. Default: auto.",
    ),
]
Threads = Annotated[
    int | None,
    flag_of(
        MACHINE,
        "--threads",
        metavar="N",
        min=1,
        max=1024,
        help="Processor threads that torch may use. Default: its own choice.",
    ),
]
Engine = Annotated[
    str,
    flag_of(
        MACHINE,
        "--engine",
        metavar="NAME",
        help="What runs the passes: auto, torch or openvino (on a CPU). Default: auto.",
    ),
]
Quantize = Annotated[
    str | None,
    flag_of(
        MACHINE,
        "--quantize",
        metavar="BITS",
        help=(
            "Round the target's weights to int8 or int4 (engine openvino): it is then "
            "another model."
        ),
    ),
]
RemoteCode = Annotated[
    bool,
    flag_of(
        MACHINE,
        "--trust-remote-code",
        metavar="",
        help="Let code that comes with a model run, the target's and the draft model's.",
    ),
]

MACHINE_FLAGS: Flags = {
    "dtype": (Dtype, "auto"),
    "device": (Device, "auto"),
    "threads": (Threads, None),
    "engine": (Engine, "auto"),
    "quantize": (Quantize, None),
    "trust_remote_code": (RemoteCode, False),
}
