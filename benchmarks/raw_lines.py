"""Raw results as JSON lines, for scripts that go on where they were interrupted: a torn last line
is no result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, but for a torn last one."""
    lines = path.read_text(encoding="utf-8").split("\n")
    if is_torn(lines[-1]):
        lines.pop()
    return [json.loads(line) for line in lines if line]


def read_if_there(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that may not have been begun."""
    return read(path) if path.exists() else []


def append(path: Path, *lines: dict[str, Any]) -> None:
    """Write lines behind those that are there; a torn last one is cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(0)
        whole, _, last = file.read().rpartition(b"\n")
        if is_torn(last.decode(errors="replace")):
            file.truncate(len(whole) + 1 if whole else 0)
        elif last:
            file.write(b"\n")
        file.write("".join(json.dumps(line) + "\n" for line in lines).encode())


def is_torn(text: str) -> bool:
    """Whether this is the beginning of a line that was not written whole."""
    try:
        json.loads(text or "null")
    except ValueError:
        return True
    return False
