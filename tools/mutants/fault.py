"""What a planted fault is, and what is wrong with a list of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("src") / "draftproof"


@dataclass(frozen=True)
class Fault:
    """A wrong line put in the place of a right one.

    file: below src/draftproof. old: text that stands there exactly once. new: what is planted. why:
    what is then wrong, in one line; it is the fault's name. tests: the files or tests of which one
    must fail, below tests/. survives: why no test can tell the difference; empty where one must."""

    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]
    survives: str = ""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.why}"

    def planted(self, source: str) -> str:
        """`source` with the fault in it."""
        return source.replace(self.old, self.new)


def complaints(faults: Iterable[Fault], root: Path = ROOT) -> Iterator[str]:
    """One line for every entry that no longer fits the tree: a list that rots proves nothing."""
    faults = list(faults)
    for name, count in Counter(fault.name for fault in faults).items():
        if count > 1:
            yield f"{name}: is listed {count} times; give each its own reason"
    for fault in faults:
        path = root / PACKAGE / fault.file
        found = path.read_text(encoding="utf-8").count(fault.old) if path.is_file() else 0
        if found != 1:
            yield (
                f"{fault.name}: the old text stands {found} times in {fault.file}, it must "
                "stand there once"
            )
        if fault.old == fault.new:
            yield f"{fault.name}: old and new are the same text"
        if not fault.tests:
            yield f"{fault.name}: names no test"
        for test in fault.tests:
            if not (root / "tests" / test.partition("::")[0]).is_file():
                yield f"{fault.name}: tests/{test} does not exist"
