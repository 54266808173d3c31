"""Edits that a repository's own history holds: blocks of code before and after a commit, and what
was asked for.

An edit is a top-level function or class in which a commit renamed one name throughout, added lines
in one place, or moved lines. None was made for a benchmark; the request is written from the diff.
"""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SHORTEST, LONGEST = 350, 1500
"""Characters of a block."""
MOST_ADDED, MOST_MOVED = 4, 12
"""Lines of an addition, and of what is moved."""


@dataclass(frozen=True)
class Edit:
    """kind: renamed, added or moved. request: what a person would ask for."""

    kind: str
    commit: str
    path: str
    request: str
    before: str
    after: str


def real_edits(repository: Path, newest: str, each: dict[str, int]) -> list[Edit]:
    """The newest edits of `repository` from the commit `newest` back, so many of each kind, one a
    file and kind."""
    found: list[Edit] = []
    wanted, seen = Counter(each), set[tuple[str, str]]()
    for edit in _edits(repository, newest):
        if wanted[edit.kind] and (edit.kind, edit.path) not in seen:
            seen.add((edit.kind, edit.path))
            wanted[edit.kind] -= 1
            found.append(edit)
        if not +wanted:
            break
    return found


def _edits(repository: Path, newest: str) -> Iterator[Edit]:
    for commit in _git(repository, "log", "--no-merges", "--format=%h", newest).split():
        changed = _git(repository, "show", "--name-status", "--format=", commit).splitlines()
        for path in (line.split("\t")[1] for line in changed if line.startswith("M\t")):
            if path.endswith((".py", ".md")):
                old = _git(repository, "show", f"{commit}~1:{path}")
                new = _git(repository, "show", f"{commit}:{path}")
                for before, after, request in _moves(old.splitlines(), new.splitlines()):
                    yield Edit("moved", commit, path, request, before, after)
                for before, after in _pairs(_blocks(old), _blocks(new)):
                    for kind, request in _asked(before, after):
                        yield Edit(kind, commit, path, request, before, after)


def _git(repository: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(repository), *words], capture_output=True, text=True, check=True
    ).stdout


def _blocks(source: str) -> list[str]:
    """Its top-level functions and classes."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    lines = source.splitlines()
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [
        "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in tree.body
        if isinstance(node, kinds)
    ]


def _pairs(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    """Blocks that changed, each with the one most like it."""
    gone, come = [b for b in old if b not in new], [b for b in new if b not in old]
    for before in gone:
        likest = max(come, key=lambda after: _lines_in_common(before, after), default="")
        if SHORTEST <= len(before) <= LONGEST and SHORTEST <= len(likest) <= LONGEST:
            yield before, likest


def _lines_in_common(one: str, other: str) -> int:
    return sum((Counter(one.splitlines()) & Counter(other.splitlines())).values())


def _asked(before: str, after: str) -> Iterator[tuple[str, str]]:
    renamed = _renamed(before, after)
    if renamed is not None:
        yield "renamed", f"Rename `{renamed[0]}` to `{renamed[1]}`."
        return
    one, other = before.splitlines(), after.splitlines()
    codes = [
        code
        for code in difflib.SequenceMatcher(None, one, other).get_opcodes()
        if code[0] != "equal"
    ]
    if len(codes) == 1 and codes[0][0] == "insert" and codes[0][4] - codes[0][3] <= MOST_ADDED:
        _, place, _, begin, end = codes[0]
        said = "\n".join(other[begin:end])
        if place and said.strip():
            yield "added", f"After the line `{one[place - 1].strip()}` add:\n{said}"


def _moves(old: list[str], new: list[str]) -> Iterator[tuple[str, str, str]]:
    """Stretches of a file in which nothing but the place of some lines changed."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    for one, other in pairwise(codes):
        if {one[0], other[0]} != {"delete", "insert"}:
            continue
        begin, end = max(one[1] - 3, 0), other[2] + 3
        shift = one[3] - one[1]
        before, after = old[begin:end], new[begin + shift : other[4] + 3]
        moved = old[one[1] : one[2]] if one[0] == "delete" else old[other[1] : other[2]]
        said = "\n".join(moved).strip()
        if sorted(before) != sorted(after) or len(said) < 30 or len(moved) > MOST_MOVED:
            continue
        texts = "\n".join(before), "\n".join(after)
        if SHORTEST <= len(texts[0]) <= LONGEST:
            where = next(
                (
                    line
                    for line in reversed(new[: one[3] if one[0] == "insert" else other[3]])
                    if line
                ),
                "",
            )
            yield *texts, f"Move these lines to after `{where.strip()}`:\n{said}"


def _renamed(before: str, after: str) -> tuple[str, str] | None:
    """The one name that became another everywhere, and nothing else changed."""
    one, other = re.findall(r"\w+|\W", before), re.findall(r"\w+|\W", after)
    if len(one) != len(other):
        return None
    changes = {(a, b) for a, b in zip(one, other, strict=True) if a != b}
    if len(changes) != 1:
        return None
    ((old, new),) = changes
    return (old, new) if old.isidentifier() and new.isidentifier() and old not in other else None
