"""`audit` tells how far it is; what it proves is tested in tests/exact."""

from __future__ import annotations

import pytest

from draftproof.cli import main as cli
from draftproof.cli import progress


def test_progress_is_told_of_cells_and_of_planted_faults(
    monkeypatch: pytest.MonkeyPatch, few_cells: None, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 1e9)
    assert cli.run(["audit", "--exact", "--rule", "token", "--workers", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["0 of 3: proving cells", "0 of 1: planting faults"]
    assert "exact: 3 cells, 1 of 1 faults caught" in captured.out
