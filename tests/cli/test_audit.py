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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "say how to audit"),
        (("--exact", "--greedy"), "--exact and --greedy are different audits"),
        (("--exact", "--dtype", "float32"), "--dtype does nothing with --exact"),
        (("--greedy", "--full"), "--full does nothing with --greedy"),
        (("--white-box", "a:b"), "'a:b' does nothing with --white-box"),
    ],
)
def test_a_flag_that_the_chosen_way_does_not_read_is_refused(
    given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["audit", *given]) == cli.EXIT_USAGE
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1
