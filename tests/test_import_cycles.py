"""No two modules of the package need each other, not even for a type or by an import within a
function."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import draftproof

PACKAGE = Path(draftproof.__file__).parent

ALLOWED = {
    (
        "draftproof.models.hf",
        "draftproof.models.load",
    ),  # HFModel.from_pretrained, for the caller's ease
    (
        "draftproof.drafters.registry",
        "draftproof.drafters.options",
    ),  # an option's type, for a file that states methods
}
"""Imports that are left out of the graph."""


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    paths = {
        path.relative_to(PACKAGE.parent).with_suffix(""): path for path in PACKAGE.rglob("*.py")
    }
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The package's modules that a file imports anywhere: at its head, under TYPE_CHECKING, within
    functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & known.keys()) or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known.keys()


def graph() -> dict[str, set[str]]:
    """Module -> the modules it imports."""
    known = modules()
    return {name: imports(path, known) - {name} for name, path in known.items()}


def test_no_import_goes_round_in_a_circle() -> None:
    found = graph()
    for name, imported in ALLOWED:
        found[name].remove(imported)  # KeyError: it is no longer needed here
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        raise AssertionError(
            f"imports in a circle: {' -> '.join(reversed(error.args[1]))}"
        ) from None


def test_imports_are_seen_wherever_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from draftproof.errors import UsageError\n"
        "def late():\n    from draftproof.core import params\n    import draftproof.lazy\n"
    )
    assert imports(file, modules()) == {
        "draftproof.errors",
        "draftproof.core.params",
        "draftproof.lazy",
    }
