"""Fail when a page says something about the tree that is not so.

    python tools/check_docs.py [ROOT]             (default: the repository this file is in)

Checked in README.md, CHANGELOG.md and docs/*.md:
- a link to a file leads to a file, and its #anchor to a heading there;
- a path in backticks that begins with a folder of the repository exists;
- `make TARGET` in backticks or a code block is a target of the Makefile;
- docs/structure.md names every folder of the package and every module that stands directly in it;
- every page in docs/ is linked from the README or from another page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:src|tests|docs|tools|examples|benchmarks|labs|requirements)/[\w./-]*")
MAKE = re.compile(r"(?<![\w-])make ((?:[a-z]+ ?)+)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)


def anchor(heading: str) -> str:
    """The anchor a Markdown host gives a heading: lower case, punctuation gone, spaces to
    hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def pages(root: Path) -> list[Path]:
    """The pages that are checked."""
    return [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").glob("*.md"))]


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Links to files or headings that are not there. Links out of the repository are not
    followed."""
    for target in LINK.findall(CODE_BLOCK.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, fragment = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists():
            yield f"the link {target} leads nowhere"
        elif fragment and fragment not in map(
            anchor, HEADING.findall(CODE_BLOCK.sub("", file.read_text(encoding="utf-8")))
        ):
            yield f"the link {target} names a heading that is not there"


def missing_paths(root: Path, text: str) -> Iterator[str]:
    """Paths in backticks that do not exist; a path with a placeholder such as <name> is not meant
    to."""
    for span in CODE_SPAN.findall(CODE_BLOCK.sub("", text)):
        if PATH.fullmatch(span) and not (root / span).exists():
            yield f"`{span}` does not exist"


def missing_targets(text: str, targets: set[str]) -> Iterator[str]:
    """`make` targets that the Makefile does not have."""
    code = [*CODE_BLOCK.findall(text), *CODE_SPAN.findall(CODE_BLOCK.sub("", text))]
    for words in (found for piece in code for found in MAKE.findall(piece)):
        for target in words.split():
            if target not in targets:
                yield f"`make {target}` is not a target of the Makefile"


def unnamed_parts(root: Path, structure: str) -> Iterator[str]:
    """Folders of the package, and modules directly in it, that docs/structure.md does not name."""
    package = root / "src" / "draftproof"
    folders = [f"{path.parent.relative_to(package)}/" for path in package.rglob("*/__init__.py")]
    modules = [path.name for path in package.glob("*.py")]
    for part in sorted(folders + modules):
        if f"`{part}`" not in structure:
            yield f"`{part}` of the package is not named"


def orphans(root: Path) -> Iterator[str]:
    """Pages in docs/ that no other page links to."""
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in pages(root)
        for target in LINK.findall(page.read_text(encoding="utf-8"))
    }
    for page in pages(root)[2:]:
        if page.resolve() not in linked:
            yield f"{page.relative_to(root)}: no page links to it"


def complaints(root: Path) -> list[str]:
    """Everything that is wrong, one line each."""
    targets = set(
        re.findall(r"^([a-z]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    found = list(orphans(root))
    for page in pages(root):
        text = page.read_text(encoding="utf-8")
        wrong = [
            *broken_links(page, text),
            *missing_paths(root, text),
            *missing_targets(text, targets),
        ]
        if page.name == "structure.md":
            wrong += unnamed_parts(root, text)
        found += [f"{page.relative_to(root)}: {line}" for line in wrong]
    return found


def main(arguments: list[str]) -> int:
    """Print every complaint; 1 when there was one."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    found = complaints(root)
    print("\n".join(found) or f"{len(pages(root))} pages agree with the tree")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
