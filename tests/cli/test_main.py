"""The command line's frame: verbs load when chosen, and every expected failure is one sentence and
the right exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import typer

import draftproof
from draftproof.cli import main as cli
from draftproof.errors import InvalidLogitsError, MissingExtraError, UsageError


def probe(failure: str, number: int = typer.Option(1, "--number", help="A whole number.")) -> None:
    """Stand-in for a verb: say the number and end as told."""
    typer.echo(number)
    endings: dict[str, BaseException] = {
        "usage": UsageError("top_p is 2.0;\nit must be in (0, 1]"),
        "logits": InvalidLogitsError("the target's logits hold NaN"),
        "extra": MissingExtraError("matplotlib", "plot"),
        "negative": typer.Exit(1),
        "interrupt": KeyboardInterrupt(),
        "pipe": BrokenPipeError(),
        "bug": ZeroDivisionError("a fault of ours"),
    }
    if failure in endings:
        raise endings[failure]
    if failure == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def heeded() -> Iterator[None]:
    """SIGTERM is taken as the command takes it."""
    before = signal.getsignal(signal.SIGTERM)
    cli.heed_termination()
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def probe_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("draftproof.cli.probe")
    module.__spec__ = ModuleSpec("draftproof.cli.probe", loader=None)
    module.register = lambda app: app.command("probe")(probe)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "draftproof.cli.probe", module)
    monkeypatch.setattr(cli, "VERBS", {**cli.VERBS, "probe": "A verb for tests."})


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"draftproof {draftproof.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_available_verb_with_its_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Usage: draftproof" in words
    for verb, text in cli.available_verbs().items():
        assert f"{verb} {text}" in words


def test_a_verb_whose_module_does_not_exist_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "VERBS", {**cli.VERBS, "teleport": "Not written."})
    assert cli.run(["--help"]) == 0
    assert "teleport" not in capsys.readouterr().out
    assert cli.run(["teleport"]) == 2


def test_every_available_verb_registers_a_command_under_its_own_name() -> None:
    for verb in cli.available_verbs():
        assert cli.load_verb(verb).name == verb


@pytest.mark.usefixtures("probe_verb")
def test_a_chosen_verb_gets_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["probe", "fine", "--number", "7"]) == 0
    assert capsys.readouterr().out == "7\n"
    assert cli.run(["probe", "--help"]) == 0
    assert "A whole number." in capsys.readouterr().out


@pytest.mark.usefixtures("probe_verb")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["probe", "usage"], "draftproof: top_p is 2.0; it must be in (0, 1]\n"),
        (["probe", "logits"], "draftproof: the target's logits hold NaN\n"),
        (["probe", "extra"], "draftproof: this needs matplotlib: pip install 'draftproof[plot]'\n"),
        (["prob"], "draftproof: there is no verb 'prob'; did you mean probe?\n"),
        (["probe", "fine", "--nunber", "7"], "--nunber"),
        (["probe", "fine", "--number", "seven"], "--number"),
        (["probe"], "argument"),
        (["--colour"], "--colour"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("draftproof: ") and message.count("\n") == 1 and sentence in message


@pytest.mark.usefixtures("probe_verb")
def test_an_unknown_verb_far_from_all_others_names_them_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["xylophone"]) == 2
    verbs = ", ".join(cli.available_verbs())
    assert (
        capsys.readouterr().err
        == f"draftproof: there is no verb 'xylophone'; the verbs are {verbs}\n"
    )


@pytest.mark.usefixtures("probe_verb")
def test_a_negative_verdict_and_an_interrupt_have_their_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["probe", "negative"]) == 1
    assert cli.run(["probe", "interrupt"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("probe_verb", "heeded")
def test_sigterm_ends_a_command_with_143_and_a_second_one_is_not_held_back() -> None:
    assert cli.run(["probe", "terminate"]) == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("probe_verb")
def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        cli.run(["probe", "bug"])


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    finished = subprocess.run(
        [sys.executable, "-m", "draftproof", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (finished.returncode, finished.stderr) == (141, "")
