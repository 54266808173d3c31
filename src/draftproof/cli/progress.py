"""A bar on standard error for long work; without a terminal, a line now and then, so that a log
shows life too.

A count that goes back, or has another total, is a new one: it gets a bar, or a line, of its own at
once. Work that cannot say how far it is, as loading a model, is told of once it has taken two
seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from time import monotonic

LINE_SECONDS = 10.0
QUIET_SECONDS = 2.0
"""Work that takes less is not told of."""
WORDS = 40


@contextmanager
def telling() -> Iterator[Callable[[str, int, int], None]]:
    """Yields a function (what begins, pieces done, pieces in all). It draws only when called, so it
    costs no measured run."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    is_new = _new_counts()
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=None, visible=False)

        def tell(what: str, done: int, total: int) -> None:
            if is_new(done, total):
                # or the time left would be reckoned from the count before
                bar.reset(task, total=total, description=_cut(what))
            bar.update(
                task,
                completed=done,
                total=total,
                description=_cut(what),
                visible=True,
                refresh=True,
            )

        yield tell


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Tell of `what` while it lasts, from QUIET_SECONDS on: a turning sign with the time that has
    passed; without a terminal one line. A thread does so, for the work itself calls nobody."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    sign = Progress(*columns, console=console, transient=True)
    sign.add_task(_cut(what), total=None)
    lock, is_over = Lock(), False

    def tell() -> None:
        with lock:
            if is_over:
                return
            if console.is_terminal:
                sign.start()
            else:
                print(f"{what} ...", file=sys.stderr, flush=True)

    timer = Timer(QUIET_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            is_over = True
        if sign.live.is_started:
            sign.stop()


def _new_counts() -> Callable[[int, int], bool]:
    """A function that says whether (done, total) belongs to another count than the last it was
    asked about."""
    before = (0, -1)

    def is_new(done: int, total: int) -> bool:
        nonlocal before
        (was_done, was_total), before = before, (done, total)
        return total != was_total or done < was_done

    return is_new


def _cut(what: str) -> str:
    """At most `WORDS` characters, so that the bar beside them is seen within 80 columns."""
    return what if len(what) <= WORDS else what[: WORDS - 3] + "..."


def _lines() -> Callable[[str, int, int], None]:
    last, is_new = -LINE_SECONDS, _new_counts()

    def tell(what: str, done: int, total: int) -> None:
        nonlocal last
        now = monotonic()
        if is_new(done, total) or now - last >= LINE_SECONDS:
            last = now
            print(f"{done} of {total}: {what}", file=sys.stderr, flush=True)

    return tell
