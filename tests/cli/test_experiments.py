"""`draftproof experiments` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.cli.main import run
from draftproof.experiments.registry import EXPERIMENTS
from draftproof.report import figures


def test_without_a_name_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["experiments", "--json"]) == 0
    out = capsys.readouterr().out
    assert all(name in out and text in out for name, text in EXPERIMENTS.items())
    assert json.loads(out.splitlines()[-1]) == {"experiments": EXPERIMENTS}


def test_a_table_a_figure_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            [
                "experiments",
                "greedy-drafter",
                "--runs",
                "200",
                "--seed",
                "3",
                "--out",
                str(tmp_path),
                "--json",
            ]
        )
        == 0
    )
    streams = capsys.readouterr()
    document = json.loads(streams.out.splitlines()[-1])
    assert document["name"] == "greedy-drafter" and document["seed"] == 3
    assert document["figures"] == [
        str(tmp_path / "greedy-drafter.png"),
        str(tmp_path / "greedy-drafter.svg"),
    ]
    assert all(Path(path).exists() for path in document["figures"])
    assert "one-hot law in the ratio" in streams.out
    assert (
        "running greedy-drafter" in streams.err
        and "wrote" in streams.err
        and "wrote" not in streams.out
    )


def test_no_figure_without_out_and_no_json_unless_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["experiments", "bonus"]) == 0
    assert "{" not in capsys.readouterr().out and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sorcery"], "there is no experiment 'sorcery'"),
        (["bonus", "--seed", "1"], "the experiment bonus has no chance in it, so it takes no seed"),
        (["bugs", "--runs", "0"], "runs must be a whole number of at least 1, got 0"),
        (["all", "--seed", "1"], "--seed and --runs go with a single experiment"),
        (["--seed", "1"], "name an experiment to run: all, noise"),
        (["bugs", "--runs", "many"], "Invalid value for '--runs'"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["experiments", *arguments]) == 2
    error = [
        line for line in capsys.readouterr().err.splitlines() if not line.startswith("running")
    ]
    assert len(error) == 1 and sentence in error[0]


def test_without_matplotlib_the_install_line_before_any_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    assert run(["experiments", "bugs", "--out", str(tmp_path)]) == 2
    streams = capsys.readouterr()
    assert (
        "pip install 'draftproof[plot]'" in streams.err
        and "running" not in streams.err
        and streams.out == ""
    )
