"""Fail where a member of the waist is asked for by `getattr` or `hasattr` instead of being
declared.

    python tools/check_waist.py [FOLDER ...]      (default: src)

Models, sessions, drafters, rules and decoders are our own: what may be asked of them stands in
their base classes, with a default where it may be left out (`src/draftproof/models/protocol.py`,
`drafters/protocol.py`, `core/rules/protocol.py`). What belongs to others (modules, configs,
tokenizers, arrays, values a caller gives) may be asked about. Two things are wrong:

- asking an object by a name that stands for one of ours: `getattr(drafter, …)`,
  `hasattr(self.target, …)`;
- asking anything but what is known to be foreign for a member that a base class declares:
  `getattr(one, "session_bytes", …)`.

A name that is only known when the code runs, as in `getattr(params, field.name)`, is asked of
records and is left alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

OURS = {
    *(
        "model",
        "models",
        "target",
        "draft",
        "draft_model",
        "session",
        "sessions",
        "decoder",
        "generation",
    ),
    *("drafter", "drafters", "drafting", "proposer", "member", "members", "rule", "arm", "sample"),
}
"""What variables, attributes and parameters that hold an object of the waist are called."""

FOREIGN = {
    *(
        "module",
        "base",
        "inner",
        "layer",
        "part",
        "child",
        "slim",
        "head",
        "output",
        "weight",
        "adapter",
    ),
    *(
        "config",
        "generation_config",
        "vllm_config",
        "tokenizer",
        "processor",
        "warper",
        "cache",
        "torch",
        "transformers",
    ),
    *("law", "row", "tensor", "value"),
}
"""What objects of other libraries are called: these may have a member that is named like one of
ours."""

DECLARED = {
    "src/draftproof/models/protocol.py": {"Session", "LanguageModel"},
    "src/draftproof/drafters/protocol.py": {
        "DraftSession",
        "Foreseeing",
        "Renewable",
        "Choosing",
        "Drafter",
    },
    "src/draftproof/core/rules/protocol.py": {"Rule", "TargetLaws"},
    "src/draftproof/decode/lengths/protocol.py": {"LengthRule"},
}
"""The files and classes that declare the waist."""

ROOT = Path(__file__).resolve().parent.parent


def declared_members(root: Path = ROOT) -> set[str]:
    """Every attribute and method of the base classes."""
    found = set()
    for file, names in DECLARED.items():
        classes = {
            node.name: node
            for node in ast.parse((root / file).read_text(encoding="utf-8")).body
            if isinstance(node, ast.ClassDef)
        }
        for name in names:
            for node in classes[name].body:
                if isinstance(node, ast.FunctionDef):
                    found.add(node.name)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found.add(node.target.id)
    return found


def complaints(path: Path, members: set[str]) -> Iterator[str]:
    """One line for every member of the waist that `path` asks for."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr")
        ):
            continue
        asked = node.args[1] if len(node.args) > 1 else None
        if not (isinstance(asked, ast.Constant) and isinstance(asked.value, str)):
            continue
        holder = last_name(node.args[0])
        if holder in OURS or (asked.value in members and holder not in FOREIGN):
            asks = f"{node.func.id}({ast.unparse(node.args[0])}, {asked.value!r})"
            yield (
                f"{path}:{node.lineno}: {asks}: declare it in the base class and read it as "
                "a member"
            )


def last_name(node: ast.expr) -> str | None:
    """What an expression is called: `target` of `self._target`, `members` of `members[0]`,
    `drafter` of `drafter(target)`."""
    if isinstance(node, ast.Attribute):
        return node.attr.lstrip("_")
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.id if isinstance(node, ast.Name) else None


def main(folders: list[str]) -> int:
    """Print every complaint about the Python files under `folders`; 1 when there was one, 2 when
    there was no file."""
    files = [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
    if not files:
        print(f"no Python file under {', '.join(folders)}", file=sys.stderr)
        return 2
    members = declared_members()
    found = [line for path in files for line in complaints(path, members)]
    print(
        "\n".join(found)
        or f"{len(files)} files ask for none of the {len(members)} members of the waist"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["src"]))
