"""The list of planted faults still fits the source; planting them is `make mutants`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mutants import FAULTS
from mutants.__main__ import MOST_SURVIVING, main
from mutants.fault import complaints
from mutants.planting import fingerprint

FAULT = FAULTS[0]


def test_every_fault_can_be_planted_and_names_tests_that_exist() -> None:
    assert list(complaints(FAULTS)) == []
    assert len(FAULTS) > 150
    assert sum(bool(fault.survives) for fault in FAULTS) <= MOST_SURVIVING * len(FAULTS)


def test_every_room_has_faults() -> None:
    rooms = {fault.file.partition("/")[0] for fault in FAULTS}
    assert rooms == {"core", "costs", "decode", "drafters", "plan", "train", "serve"}


def test_an_entry_that_rots_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "src" / "draftproof" / "a.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1\ny = 1\nz = 2\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").touch()
    good = replace(FAULT, file="a.py", old="z = 2", new="z = 3", tests=("test_a.py::test_z",))
    bad = {
        "stands 0 times in a.py": replace(good, old="z = 4", why="gone"),
        "stands 2 times in a.py": replace(good, old="= 1", why="twice"),
        "stands 0 times in b.py": replace(good, file="b.py"),
        "the same text": replace(good, new=good.old, why="no fault"),
        "names no test": replace(good, tests=(), why="nobody looks"),
        "tests/test_b.py does not exist": replace(good, tests=("test_b.py",), why="test gone"),
    }
    assert list(complaints([good], tmp_path)) == []
    for said, fault in bad.items():
        (sentence,) = complaints([fault], tmp_path)
        assert said in sentence
    assert "is listed 2 times" in next(complaints([good, good], tmp_path))


def test_what_was_found_is_asked_again_when_the_fault_changes() -> None:
    assert fingerprint(FAULT) == fingerprint(FAULT)
    assert fingerprint(FAULT) != fingerprint(replace(FAULT, new=FAULT.new + " "))


def test_a_request_for_no_fault_is_refused(capsys, tmp_path: Path) -> None:
    assert main(["--only", "nothing like this", "--out", str(tmp_path / "out")]) == 2
    assert "names no fault" in capsys.readouterr().err
