"""`generate --prediction`: an expected text is drafted from, or the flag is refused; the text stays
what it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli import main as cli

PROMPT = "the cat sat on the mat and the cat sat on the"
Document = Callable[..., dict[str, Any]]


def asked(target: Path, *more: object) -> tuple[object, ...]:
    return (
        "generate",
        PROMPT,
        "--target",
        target,
        "--dtype",
        "float32",
        "--temperature",
        0,
        "--max-tokens",
        24,
        *more,
    )


@pytest.mark.parametrize("method", [(), ("--method", "prediction")])
def test_the_same_text_in_fewer_passes(
    target: Path, tmp_path: Path, document: Document, method: tuple[str, ...]
) -> None:
    plain = document(*asked(target, "--method", "none"))
    (tmp_path / "expected.txt").write_text(plain["text"])
    ours = document(*asked(target, "--prediction", tmp_path / "expected.txt", *method))
    assert ours["token_ids"] == plain["token_ids"]
    assert ours["stats"]["num_rounds"] < plain["stats"]["num_rounds"]


@pytest.mark.parametrize(
    "more, sentence",
    [
        (("--method", "ngram"), "--prediction is read by --method prediction"),
        (("--method", "none"), "this is none"),
    ],
)
def test_refused_where_nothing_reads_it(
    target: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    sentence: str,
) -> None:
    (tmp_path / "expected.txt").write_text("text")
    assert (
        cli.run([str(a) for a in asked(target, "--prediction", tmp_path / "expected.txt", *more)])
        == 2
    )
    assert sentence in capsys.readouterr().err


def test_a_file_that_is_not_there_is_one_sentence(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([str(a) for a in asked(target, "--prediction", "nowhere.txt")]) == 2
    assert "nowhere.txt cannot be read" in capsys.readouterr().err
