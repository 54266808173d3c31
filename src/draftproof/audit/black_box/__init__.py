"""Texts of an engine that shows nothing else, against the law of a local copy of its target, or
against its plain texts."""

from __future__ import annotations

from importlib.util import find_spec

from draftproof.errors import MissingExtraError


def check_distributions() -> None:
    """MissingExtraError where scipy is absent, whose distributions the tests read."""
    if find_spec("scipy") is None:
        raise MissingExtraError("scipy", "audit")
