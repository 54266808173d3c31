"""Plant one fault in a copy of the package and run its tests."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

from mutants.fault import PACKAGE, ROOT, Fault

Found = Literal["caught", "survived", "broken"]
"""broken: the tests did not run at all, so nothing is known (a planted text that is no Python,
say)."""

LIMIT = 600
"""Seconds after which a run of tests counts as caught: a fault may make a loop endless."""

PASSED, FAILED = 0, 1
"""Exit codes of pytest; any other says that the tests did not run."""

RAN = 10
"""Added to them, so that a process that broke down is not taken for one whose tests failed."""

SERVER = get_context("forkserver")
"""Every run of tests is a fork of one process that has imported the large libraries, and nothing of
this package."""
SERVER.set_forkserver_preload(["pytest", "torch", "transformers.models.llama.modeling_llama"])


class Copy:
    """A copy of the package in `folder`, in which one fault at a time is planted."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "src"
        shutil.copytree(
            ROOT / "src", self.source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )

    def run(self, fault: Fault) -> Found:
        """What the tests of `fault` say while it is planted."""
        path = self.source / PACKAGE.name / fault.file
        right = path.read_text(encoding="utf-8")
        self._write(path, fault.planted(right))
        try:
            code = self.pytest(fault.tests)
        finally:
            self._write(path, right)
        return "survived" if code == PASSED else "caught" if code == FAILED else "broken"

    def pytest(self, tests: Iterable[str]) -> int:
        """pytest's exit code over `tests` with this copy in the package's place, in a process of
        its own."""
        process = SERVER.Process(target=_pytest, args=(str(self.source), tuple(tests)))
        process.start()
        process.join(LIMIT)
        if process.exitcode is None:
            process.kill()
            process.join()
            return FAILED
        return process.exitcode - RAN

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """The text and no stale bytecode: that is told apart by size and second alone."""
        path.write_text(text, encoding="utf-8")
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def _pytest(source: str, tests: tuple[str, ...]) -> None:
    """Run pytest with the package of `source`, for child processes too, and say nothing."""
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(silent, stream.fileno())
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = source
    sys.path.insert(0, source)
    import pytest

    named = [str(ROOT / "tests" / test) for test in tests]
    options = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "120",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    sys.exit(RAN + int(pytest.main([*options, *named])))


def fingerprint(fault: Fault) -> str:
    """Changes when the fault, the file it is planted in or the tests it names do."""
    mark = hashlib.sha256(repr(fault).encode())
    for path in (
        PACKAGE / fault.file,
        *(Path("tests") / test.partition("::")[0] for test in fault.tests),
    ):
        mark.update((ROOT / path).read_bytes())
    return mark.hexdigest()
