"""`draftproof chat`: turns from standard input, commands, and what each turn had to read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli import main as cli

Talk = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def talk(target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    """Run the chat on these lines; the document and standard error."""

    def run(*lines: str, more: tuple[object, ...] = ()) -> tuple[dict[str, Any], str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(line + "\n" for line in lines)))
        settings = (
            "--target",
            target,
            "--dtype",
            "float32",
            "--temperature",
            0,
            "--max-tokens",
            10,
            "--json",
        )
        assert cli.run(["chat", *map(str, (*settings, *more))]) == 0
        captured = capsys.readouterr()
        return json.loads(captured.out.splitlines()[-1]), captured.err

    return run


def test_five_turns_read_only_what_is_new(talk: Talk) -> None:
    """Random bytes are no text, so an answer may read otherwise when it is rendered again; all that
    stood before it is kept."""
    lines = [f"the cat {i} sat" for i in range(5)]
    document, told = talk(*lines, more=("--system", "on the mat"))
    turns = document["turns"]
    assert [turn["question"] for turn in turns] == lines
    assert turns[0]["num_cached_tokens"] == 0
    for before, turn in zip(turns, turns[1:], strict=False):
        assert turn["num_cached_tokens"] >= before["num_prompt_tokens"]
    assert [message["role"] for message in document["messages"][:3]] == [
        "system",
        "user",
        "assistant",
    ]
    assert f"of {turns[4]['num_prompt_tokens']} prompt tokens read" in told


def test_commands(talk: Talk) -> None:
    document, told = talk(
        "the cat",
        "/undo",
        "/undo",
        "the dog",
        "",
        "/reset",
        "the mat",
        "/what",
        "/help",
        "/exit",
        "never said",
    )
    assert [turn["question"] for turn in document["turns"]] == ["the cat", "the dog", "the mat"]
    assert [
        message["content"] for message in document["messages"] if message["role"] == "user"
    ] == ["the mat"]
    for sentence in (
        "the last turn is taken back",
        "no turn to take back",
        "a new conversation",
        "no command /what",
        "/exit: leave",
    ):
        assert sentence in told
    first = document["turns"][1]
    assert first["num_cached_tokens"] > 0  # the same beginning as the turn that was taken back


def test_an_answer_is_shown_as_it_comes(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat sat on the cat\n"))
    assert (
        cli.run(
            [
                "chat",
                "--target",
                str(target),
                "--dtype",
                "float32",
                "--temperature",
                "0",
                "--max-tokens",
                "6",
                "--show",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("[accepted draft]")


def test_wrong_use_is_refused(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["chat", "--target", str(target), "--top-p", "7"]) == 2
    assert "top_p" in capsys.readouterr().err


def test_tools_and_variables_of_the_template(thinking: Path, tools: Path, talk: Talk) -> None:
    flags = (
        "--target",
        thinking,
        "--tools",
        tools,
        "--chat-template-kwargs",
        '{"enable_thinking": false}',
    )
    document, _ = talk("Hi", "Ho", more=flags)
    shorter, _ = talk("Hi", "Ho", more=("--target", thinking))
    assert document["turns"][1]["num_prompt_tokens"] > shorter["turns"][1]["num_prompt_tokens"]


def test_a_template_that_refuses_is_told_before_the_first_turn(
    thinking: Path,
    tools: Path,
    target: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\n"))
    assert "System role not supported" in refused(
        "chat", "--target", thinking, "--system", "Be brief."
    )
    assert "takes no tools" in refused("chat", "--target", target, "--tools", tools)


def test_flags_that_do_nothing_are_refused_before_the_first_turn(
    target: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "--top-p does nothing" in refused(
        "chat", "--target", target, "--temperature", 0, "--top-p", 0.5
    )


def test_a_turn_that_no_longer_fits_loses_no_other(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Piped in, the conversation ends there, with its document; on a terminal it goes on."""
    said = ["the cat", "the dog " * 400, "the mat"]
    flags = ("chat", "--target", str(target), "--temperature", "0", "--max-tokens", "4", "--json")
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(line + "\n" for line in said)))
    assert cli.run(flags) == 2
    captured = capsys.readouterr()
    assert [turn["question"] for turn in json.loads(captured.out.splitlines()[-1])["turns"]] == [
        "the cat"
    ]
    assert "tokens; " in captured.err.splitlines()[-1]
    lines = iter(said)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("draftproof.cli.chat._ask", lambda: next(lines, None) or end())
    assert cli.run(flags) == 0
    captured = capsys.readouterr()
    assert [turn["question"] for turn in json.loads(captured.out.splitlines()[-1])["turns"]] == [
        "the cat",
        "the mat",
    ]
    assert "one must be left to generate" in captured.err


def end() -> str:
    raise EOFError
