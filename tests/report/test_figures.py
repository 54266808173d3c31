"""Figures are reproducible, need their extra, and say so when a folder cannot be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftproof.errors import MissingExtraError, UsageError
from draftproof.report import figures
from draftproof.report.figures import panels, save_figure


def draw(figure: Any) -> None:
    left, right = panels(figure, 2)
    left.plot([1, 2], [2, 1])
    right.bar([0, 1], [3, 4])


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    first = save_figure(draw, tmp_path / "a", "same")
    second = save_figure(draw, tmp_path / "b", "same")
    assert [path.name for path in first] == ["same.png", "same.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_without_matplotlib_the_install_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'draftproof\[plot\]'"):
        save_figure(draw, tmp_path, "x")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write figures to"):
        save_figure(draw, tmp_path / "file" / "folder", "x")
