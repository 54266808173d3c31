"""The flags of sampling, made from the table of parameters; one that is not given stays None and is
left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from draftproof.core.parameters import PARAMETERS, Flag

PANEL = "Sampling"
DEFAULT_MAX_TOKENS = 256

Flags = Mapping[str, tuple[Any, Any]]
"""Name of a parameter -> its annotation and its default."""


def _flags(role: str) -> Flags:
    flags: dict[str, tuple[Any, Any]] = {}
    for parameter, stated in PARAMETERS.items():
        flag = stated.flag
        if isinstance(flag, Flag) and role == ("text" if flag.of_texts else stated.role):
            name = flag.name or parameter
            flags[name] = _flag(name, flag)
    return flags


def _flag(name: str, flag: Flag) -> tuple[Any, Any]:
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        metavar=flag.metavar,
        help=flag.help,
        rich_help_panel=PANEL,
        show_default=False,
    )
    return (
        (Annotated[bool, option], False)
        if flag.kind is bool
        else (Annotated[flag.kind | None, option], None)
    )


LAW_FLAGS = _flags("law")
"""What a token's law depends on."""
END_FLAGS = _flags("end")
"""What ends a text, and the seed."""
TEXT_FLAGS = _flags("text")
"""What is of use where a text is shown."""
