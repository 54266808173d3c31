"""The API key of `serve` and of those who ask a server: a flag, or a variable that no list of
processes shows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

KEY_VARIABLE = "DRAFTPROOF_API_KEY"


def api_key(flags: Mapping[str, Any]) -> str | None:
    """--api-key, else the variable; None where neither is set."""
    given: str | None = flags["api_key"]
    return os.environ.get(KEY_VARIABLE) if given is None else given


def without_key(arguments: Sequence[str]) -> list[str]:
    """A command line that can be shown: the key of --api-key left out."""
    shown, is_key = [], False
    for argument in arguments:
        name, sign, _ = argument.partition("=")
        shown.append(
            "KEY" if is_key else "--api-key=KEY" if sign and name == "--api-key" else argument
        )
        is_key = argument == "--api-key"
    return shown
