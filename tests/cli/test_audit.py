"""`audit` tells how far it is; what it proves is tested in tests/exact."""

from __future__ import annotations

import pytest

from draftproof.audit import cells, table, tree_mutants
from draftproof.cli import main as cli
from draftproof.cli import progress


def test_progress_is_told_of_cells_and_of_planted_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 1e9)
    few = table.covering(["token"])[:3]
    monkeypatch.setattr(table, "covering", lambda rules: few)
    for module, name in (
        *((table, "tree_covering"), (table, "guessed_covering")),
        *((cells, "other_covering"), (cells, "head_covering"), (cells, "length_covering")),
    ):
        monkeypatch.setattr(module, name, lambda rules: [])
    fault = next(mutant for mutant in tree_mutants.MUTANTS if mutant.natural == "token")
    monkeypatch.setattr(tree_mutants, "MUTANTS", (fault,))
    assert cli.run(["audit", "--exact", "--rule", "token", "--workers", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["0 of 3: proving cells", "0 of 1: planting faults"]
    assert "exact: 3 cells, 1 of 1 faults caught" in captured.out
