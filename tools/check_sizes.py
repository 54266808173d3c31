"""Fail when a source file or a function is too long to be read in one go.

    python tools/check_sizes.py [FOLDER ...]      (default: src)

A file may have 480 lines, a function 60 after its signature, its docstring and the
functions inside it included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 480
MAX_FUNCTION_LINES = 60


def complaints(path: Path) -> Iterator[str]:
    """One line for everything in `path` that is over its cap."""
    source = path.read_text(encoding="utf-8")
    lines = len(source.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{path}: {lines} lines, at most {MAX_FILE_LINES} are allowed"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield (
                    f"{path}:{node.lineno}: {node.name} has {length} lines, at most "
                    f"{MAX_FUNCTION_LINES} are allowed"
                )


def main(folders: list[str]) -> int:
    """Print every complaint about the Python files under `folders`; 1 when there was one, 2 when
    there was no file."""
    files = [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
    if not files:
        print(f"no Python file under {', '.join(folders)}", file=sys.stderr)
        return 2
    found = [line for path in files for line in complaints(path)]
    print(
        "\n".join(found)
        or (
            f"{len(files)} files within {MAX_FILE_LINES} lines, functions within "
            f"{MAX_FUNCTION_LINES}"
        )
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["src"]))
