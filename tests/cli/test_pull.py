"""`draftproof pull`: where the model is, and what can be pulled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli import main as cli
from draftproof.models.pull import DEFAULT_MODEL, PULLABLE, pulled_folder


@pytest.fixture
def pulled(_no_network: None) -> Path:
    """A finished pull, as far as the command can tell."""
    folder = pulled_folder(DEFAULT_MODEL)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_what_is_here_is_not_fetched_again(
    pulled: Path, capsys: pytest.CaptureFixture[str], document: Callable[..., Any]
) -> None:
    assert cli.run(["pull"]) == 0
    assert capsys.readouterr().out == f"{DEFAULT_MODEL} is in {pulled}\n"
    got = document("pull", PULLABLE[DEFAULT_MODEL].hub_id)
    assert got["folder"] == str(pulled) and got["seconds"] >= 0


def test_the_list_names_every_model_and_where_it_is(
    capsys: pytest.CaptureFixture[str], document: Callable[..., Any]
) -> None:
    assert cli.run(["pull", "--list"]) == 0
    out = capsys.readouterr().out
    for name, entry in PULLABLE.items():
        assert name in out and entry.hub_id in out
    assert "not here yet" in out
    rows = document("pull", "--list")["models"]
    assert [row["name"] for row in rows] == list(PULLABLE)
    assert [row["name"] for row in rows if row["default"]] == [DEFAULT_MODEL]


def test_the_list_shows_the_folder_of_what_is_here(
    pulled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["pull", "--list", "--json"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert json.loads(captured.out)["models"][0]["folder"] == str(pulled)
