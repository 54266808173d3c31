"""The command: see the package's docstring."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mutants import FAULTS
from mutants.fault import ROOT, Fault, complaints
from mutants.planting import PASSED, Copy, Found, fingerprint

MOST_SURVIVING = 1 / 20
"""Of all faults, the share that may survive with a reason."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every fault is caught but for those that say why not; 1: not so; 2: the list or the
    request is wrong."""
    asked = _parser().parse_args(arguments)
    chosen = [fault for fault in FAULTS if asked.only in fault.name]
    wrong = list(complaints(FAULTS)) or (
        [] if chosen else [f"--only {asked.only!r} names no fault"]
    )
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    kept = Kept(asked.out)
    found = {
        fault: kept.found[fingerprint(fault)]
        for fault in chosen
        if fingerprint(fault) in kept.found
    }
    missing = [fault for fault in chosen if fault not in found]
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, _bar(console) as bar:
        task = bar.add_task("planting", total=len(chosen), completed=len(found))
        for fault, result in _plant(missing, asked.workers, Path(folder)):
            kept.add(fault, result)
            found[fault] = result
            bar.advance(task)
    return _report(found, asked.json)


class Kept:
    """What earlier runs found, one line of JSON each; "broken" is asked again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self.found: dict[str, Found] = {
            entry["fingerprint"]: entry["found"] for entry in map(json.loads, lines)
        }

    def add(self, fault: Fault, found: Found) -> None:
        if found == "broken":
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps({"fingerprint": fingerprint(fault), "name": fault.name, "found": found})
                + "\n"
            )


def _plant(faults: Sequence[Fault], workers: int, folder: Path) -> Iterator[tuple[Fault, Found]]:
    """Every fault with what came of it, as it comes. Without any fault all the tests named must
    pass, or a failure says nothing."""
    if not faults:
        return
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(workers):
        copies.put(Copy(folder / str(number)))
    if (
        Copy(folder / "right").pytest(sorted({test for fault in faults for test in fault.tests}))
        != PASSED
    ):
        raise SystemExit("the tests fail with nothing planted; run them first")

    def run(fault: Fault) -> tuple[Fault, Found]:
        copy = copies.get()
        try:
            return fault, copy.run(fault)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(workers) as pool:
        yield from (
            done.result() for done in as_completed([pool.submit(run, fault) for fault in faults])
        )


def _report(found: dict[Fault, Found], as_json: bool) -> int:
    broken = [fault for fault, result in found.items() if result == "broken"]
    survived = [fault for fault, result in found.items() if result == "survived"]
    unseen = [fault for fault in survived if not fault.survives]
    stale = [fault for fault, result in found.items() if result == "caught" and fault.survives]
    excused = len(survived) - len(unseen)
    too_many = excused > MOST_SURVIVING * len(FAULTS)
    if as_json:
        print(
            json.dumps(
                {"faults": len(found), "caught": len(found) - len(survived) - len(broken)}
                | {
                    kind: [fault.name for fault in faults]
                    for kind, faults in (
                        ("survived", survived),
                        ("without a reason", unseen),
                        ("stale", stale),
                        ("broken", broken),
                    )
                }
            )
        )
    else:
        for said, faults in (
            ("SURVIVED", unseen),
            ("CAUGHT AFTER ALL, take its reason away", stale),
            ("NOT RUN", broken),
        ):
            for fault in faults:
                print(f"{said}: {fault.name} (tests: {', '.join(fault.tests)})")
        for fault in survived:
            if fault.survives:
                print(f"survives: {fault.name}: {fault.survives}")
        print(
            f"{len(found)} faults planted, {len(found) - len(survived) - len(broken)} "
            f"caught, {excused} survive with a reason"
        )
        if too_many:
            print("more than one in twenty survives")
    return 1 if unseen or stale or broken or too_many else 0


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mutants", description="Plant faults in a copy of the package and run the tests."
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="WORD",
        help="only faults whose name (file: what is wrong) holds WORD",
    )
    parser.add_argument(
        "--json", action="store_true", help="what was found as one JSON object on stdout"
    )
    parser.add_argument("--workers", type=int, default=2, help="faults planted at a time (2)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "mutants.jsonl", help="what was found so far"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
