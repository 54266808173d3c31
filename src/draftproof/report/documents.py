"""Results of `plan` and `bench` as files: read with everything checked, named, and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from draftproof.errors import UsageError
from draftproof.report.result import Result

FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    "draftproof.bench": (
        "draftproof.bench.table",
        ("level", "arms", "flags", "prompts", "params", "repeats", "provenance"),
    ),
    "draftproof.plan": (
        "draftproof.plan.document",
        ("headline", "notes", "choices", "best", "drafters", "prompts", "params", "provenance"),
    ),
}
"""Format -> the module whose `sections` show a result of it, and what such a result holds at
least."""


def sections_of(document: Mapping[str, Any]) -> Sequence[Result]:
    """What a page shows of one document."""
    shown: Sequence[Result] = import_module(FORMATS[document["format"]][0]).sections(document)
    return shown


def read_document(path: Path) -> dict[str, Any]:
    """A result file. UsageError: not readable, not JSON, or nothing that plan or bench wrote."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, Mapping) or data.get("format") not in list(FORMATS):
        raise UsageError(f"{path} is no result of plan or bench; write one with their --out")
    missing = [key for key in FORMATS[data["format"]][1] if key not in data]
    if missing:
        raise UsageError(f"{path} is damaged, or of another version: it lacks {', '.join(missing)}")
    return dict(data)


def names_of(files: Sequence[Path]) -> list[str]:
    """What the results are called on the page: the names of their files, with the folders where
    names alone would be the same. UsageError for a file that is named twice."""
    whole = [path.resolve() for path in files]
    twice = next(
        (path for path, place in zip(files, whole, strict=True) if whole.count(place) > 1), None
    )
    if twice is not None:
        raise UsageError(f"{twice} is named twice: a result stands on the page once")
    names = [path.name for path in files]
    return names if len(set(names)) == len(names) else [str(path) for path in files]
