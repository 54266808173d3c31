"""The Python on the pages runs, and its assertions hold."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import draftproof

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["add_a_drafter.md", "add_a_rule.md", "from_python.md"])
def test_page_runs_from_top_to_bottom(name: str) -> None:
    blocks = BLOCK.findall((DOCS / name).read_text(encoding="utf-8"))
    assert sum("assert " in block for block in blocks) >= 1
    namespace: dict[str, object] = {"__name__": name}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{name}, block {number}", "exec"), namespace)


@pytest.mark.proof
def test_the_long_block_of_the_page_from_python() -> None:
    (block,) = re.findall(
        r"^```py\n(.*?)^```",
        (DOCS / "from_python.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    exec(compile(block, "from_python.md", "exec"), {"__name__": "from_python"})


def test_readme_imports_public_names_only() -> None:
    blocks = BLOCK.findall((DOCS.parent / "README.md").read_text(encoding="utf-8"))
    imported = {
        alias.name
        for block in blocks
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and node.module == "draftproof"
        for alias in node.names
    }
    assert {"SamplingParams", "SpeculativeDecoder"} <= imported <= set(draftproof.__all__)
