"""Every verb's `--json`, run once: the document is read back, and its keys are those that
docs/json_documents.md lists."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import draftproof.models.pull as models_pull
from draftproof.audit.black_box import self_test
from draftproof.cli import main as cli
from draftproof.core.records import Round
from draftproof.decode.statistics import statistics
from draftproof.heads.folder import save_head
from draftproof.heads.target import target_view
from draftproof.models import machine, steps
from draftproof.models.load import load_model
from draftproof.train.run import Recipe, fresh_head

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json_documents.md"
SMALL = ("--dtype", "float32", "--threads", 1, "--max-tokens", 6, "--temperature", 0)
TEXT = "the cat sat on the mat and the cat sat on the"

Place = dict[str, Any]


def audited(at: Place) -> tuple[object, ...]:
    return (
        "--draft",
        at["draft"],
        "--prompts",
        at["lines"],
        "--dtype",
        "float32",
        "--max-tokens",
        12,
    )


CASES: dict[str, Callable[[Place], tuple[object, ...]]] = {
    "generate": lambda at: ("generate", TEXT, "--target", at["target"], *SMALL),
    "generate --compare": lambda at: (
        "generate",
        TEXT,
        "--target",
        at["target"],
        *SMALL,
        "--compare",
        "--repeat",
        1,
    ),
    "generate --file": lambda at: (
        "generate",
        "--file",
        at["lines"],
        "--out",
        at["new"],
        "--target",
        at["target"],
        *SMALL,
    ),
    "chat": lambda at: ("chat", "--target", at["target"], *SMALL),
    "pull": lambda at: ("pull",),
    "pull --list": lambda at: ("pull", "--list"),
    "plan": lambda at: (
        "plan",
        "--target",
        at["target"],
        "--prompts",
        at["lines"],
        *SMALL,
        "-k",
        2,
    ),
    "plan --alpha": lambda at: ("plan", "--alpha", 0.8, "--cost-ratio", 0.1, "-k", 2),
    "bench": lambda at: (
        "bench",
        "--target",
        at["target"],
        "--prompts",
        at["lines"],
        *SMALL,
        "--repeat",
        1,
        "--arm",
        "ngram:2",
    ),
    "build-store": lambda at: (
        *(
            "build-store",
            at["text"],
            "--method",
            "retrieval",
            "--target",
            at["target"],
            "--out",
            at["new"],
        ),
    ),
    "audit": lambda at: ("audit", "--exact", "--rule", "token", "--workers", 1),
    "audit --exact MODULE:NAME": lambda at: ("audit", "--exact", "step_functions:always_one"),
    "audit --white-box": lambda at: (
        *("audit", "--white-box", "--target", at["target"]),
        *audited(at),
    ),
    "audit --greedy": lambda at: (*("audit", "--greedy", "--target", at["target"]), *audited(at)),
    "audit --black-box": lambda at: (
        *(
            "audit",
            "--black-box",
            "step_functions:blind",
            "--target",
            at["target"],
            "--prompts",
            at["text"],
        ),
        *("--max-tokens", 4, "--num-texts", 2, "--temperature", 100),
    ),
    "audit --self-test": lambda at: ("audit", "--self-test"),
    "export vllm": lambda at: (
        "export",
        "vllm",
        at["head"],
        "--out",
        at["folder"],
        "--target",
        at["target"],
    ),
    "doctor": lambda at: ("doctor", at["target"], "--draft", at["draft"], "--device", "cpu"),
    "simulate": lambda at: ("simulate", "batch", "--batch", 1, "--context", 1024, "-k", 2),
    "simulate generation": lambda at: (
        "simulate",
        "generation",
        "--simulations",
        2,
        "--tokens",
        10,
        "--alpha",
        0.5,
    ),
    "experiments": lambda at: ("experiments",),
    "experiments NAME": lambda at: ("experiments", "bonus"),
}


@pytest.fixture
def place(
    target: Path,
    draft: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few_cells: None,
    request: pytest.FixtureRequest,
) -> Place:
    """What the command lines name, and a machine on which nothing takes long."""
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n"))
    monkeypatch.setattr(models_pull, "pull", lambda name: tmp_path)
    monkeypatch.setattr(steps, "REPEATS", 1)
    monkeypatch.setattr(self_test, "NEEDED", {"3 tokens": {"off by one": 79}})
    monkeypatch.setattr(self_test, "EXACT", {})
    monkeypatch.setattr(machine, "WIDTH", 16)
    speed = machine.dtype_speed
    monkeypatch.setattr(
        machine, "dtype_speed", lambda device, tell: speed(device, seconds=0.0, tell=tell)
    )
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "lines.jsonl").write_text(json.dumps({"prompt": TEXT}) + "\n")
    if request.node.callspec.params["name"] == "export vllm":
        _head(tmp_path / "head", target)
    names = {
        "new": "new",
        "folder": "folder",
        "head": "head",
        "text": "text.txt",
        "lines": "lines.jsonl",
    }
    return {"target": target, "draft": draft} | {
        name: tmp_path / file for name, file in names.items()
    }


def _head(folder: Path, target: Path) -> None:
    folder.mkdir()
    view = target_view(load_model(str(target), dtype="float32"))
    save_head(folder, fresh_head(Recipe("medusa", num_heads=2), view, [], 0), view)


def listed() -> dict[str, set[str]]:
    """Heading of the page -> the keys its bullets name."""
    found: dict[str, set[str]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## `?([^`]+)`?$", line):
            keys = found.setdefault(heading[1], set())
        elif names := re.match(r"- ((?:`\w+`(?:, )?)+):", line):
            keys |= set(re.findall(r"`(\w+)`", names[1]))
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_document_has_the_keys_of_its_page(
    name: str, place: Place, document: Callable[..., dict[str, Any]]
) -> None:
    got = document(*CASES[name](place))
    assert set(got) == listed()[name]


def test_the_page_has_all_statistics() -> None:
    record = Round(0, (1,), (-1,), (1, 2), ("draft", "bonus"), 1, 1)
    assert set(statistics([record]).as_dict()) == listed()["Statistics"]
    assert set(listed()) == {*CASES, "Statistics"}


def test_no_verb_with_json_is_left_out() -> None:
    """A verb that learns `--json` gets a case here; `report` and `train` have none."""
    commands: dict[str, Any] = {}
    for verb in cli.available_verbs():
        command = cli.load_verb(verb)
        group = getattr(command, "commands", None)
        commands |= (
            {verb: command}
            if group is None
            else {f"{verb} {name}": sub for name, sub in group.items()}
        )
    with_json = {
        name
        for name, command in commands.items()
        if any("--json" in option.opts for option in command.params)
    }
    assert with_json == {name for name in CASES if name in commands}
