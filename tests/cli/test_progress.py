"""What long work tells on standard error: one count at a time, each begun at once, a line or a bar
that fits 80 columns."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from time import monotonic, sleep

import pytest

from draftproof.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 80 columns in the place of standard error."""
    from rich import console

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    for name in ("TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert console.Console(stderr=True).is_terminal
    return screen


def test_without_a_terminal_a_new_count_is_told_at_once_and_an_old_one_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: clock[0])
    with progress.telling() as tell:
        for clock[0], what, done, total in (
            *((0.0, "1/3 timing", 0, 2), (1.0, "1/3 timing", 1, 2)),
            *(
                (2.0, "2/3 answers", 0, 40),
                (3.0, "2/3 answers", 8, 40),
                (12.5, "2/3 answers", 16, 40),
            ),
            *((13.0, "3/3 timing", 0, 2), (14.0, "3/3 timing", 1, 2)),
        ):
            tell(what, done, total)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "0 of 2: 1/3 timing",
        "0 of 40: 2/3 answers",
        "16 of 40: 2/3 answers",
        "0 of 2: 3/3 timing",
    ]


def test_on_a_terminal_a_bar_takes_one_line_of_80_columns_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = terminal(monkeypatch)
    with progress.telling() as tell:
        tell("a drafter of a very long name, prompt 100 of 100", 99, 100)
        tell("the next count", 0, 7)
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\r", screen.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", drawn) if line.strip()]
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert (
        any("99%" in line for line in lines) and "the next count" in lines[-1] and "0%" in lines[-1]
    )
    assert screen.getvalue().endswith("\x1b[2K")


def waits_for(said: str, read: Callable[[], str]) -> str:
    """What was told once `said` is in it; a thread tells it, in its own time."""
    told, end = "", monotonic() + 30
    while said not in told and monotonic() < end:
        sleep(0.01)
        told += read()
    return told


def test_work_that_takes_long_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.01)
    with progress.waiting("loading a model"):
        assert waits_for("...", lambda: capsys.readouterr().err) == "loading a model ...\n"
    assert capsys.readouterr().err == ""


def test_short_work_is_not_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 600)
    with progress.waiting("loading a model"):
        pass
    assert capsys.readouterr() == ("", "")
    screen = terminal(monkeypatch)
    with pytest.raises(ValueError, match="no such model"), progress.waiting("loading a model"):
        raise ValueError("no such model")
    assert screen.getvalue() == ""


def test_on_a_terminal_a_sign_turns_while_it_takes_long_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.01)
    screen = terminal(monkeypatch)
    with progress.waiting("loading a model of a name that is longer than a line"):
        drawn = waits_for("0:00", screen.getvalue)
    assert "loading a model of a name that is lon..." in drawn
    assert screen.getvalue().rstrip("\x1b[?25h").endswith("\x1b[2K")
