"""`audit` tells how far it is; what it proves is tested in tests/exact."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_a_rule_without_faults_to_plant_prints_no_empty_table(
    few_cells: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["audit", "--exact", "--rule", "gumbel", "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    assert "Planted faults" not in printed and "No fault of such a rule is known" in printed


@pytest.mark.parametrize(
    ("command", "end"),
    [
        (("audit", "--exact", "--rule", "nope"), "token, traversal"),
        (("generate", "--rule", "nope", "x"), "token, traversal, typical (lossy)"),
    ],
)
def test_rules_are_listed_with_what_is_lossy(command, end, refused) -> None:
    assert refused(*command).rstrip().endswith(end)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "known to be exact or faulty"),
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


@pytest.mark.parametrize("engine", ["ours", "transformers"])
def test_the_rounds_of_an_engine_are_tested(
    engine: str, target: Path, draft: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """240 tokens are too few for a verdict at the level asked, and enough at a coarser one."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(
            json.dumps({"prompt": f"the cat sat on the mat {number}"}) + "\n" for number in range(6)
        )
    )
    models = (
        "--target",
        str(target),
        "--draft",
        str(draft),
        "--prompts",
        str(prompts),
        "--max-tokens",
        "40",
    )
    assert (
        cli.run(["audit", "--white-box", "--engine", engine, *models, "--level", "1e-6", "--json"])
        == 0
    )
    *shown, line = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert document["outcome"] in ("exact", "cannot tell") and document["tokens"] == 240
    assert document["claimed_rule"] == document["rule"] == "token"
    assert document["outcome"] in shown[-1]


@pytest.mark.parametrize("engine", ["ours", "transformers"])
def test_greedy_texts_are_compared(
    engine: str, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(
        "the cat sat on the mat and the cat sat on\n---\nfor x in values: total = total + x"
    )
    given = (
        "--target",
        str(target),
        "--method",
        "ngram",
        "--prompts",
        str(prompts),
        "--max-tokens",
        "30",
    )
    assert cli.run(["audit", "--greedy", "--engine", engine, *given]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "plain against plain: 2 of 2 texts are the same" and shown[-1].startswith(
        "exact: 0 of 2"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--engine", "theirs"), "--engine 'theirs' is unknown; allowed: ours or transformers"),
        (
            ("--engine", "transformers", "--method", "suffix"),
            "--method suffix is not transformers'",
        ),
        (("--engine", "transformers", "--tree", "2,2"), "--tree is draftproof's own"),
        (("--engine", "transformers", "--method", "draft_model"), "needs a draft model"),
        (("--method", "none"), "--method none drafts nothing"),
        (("--method", "ngram", "--rule", "typical"), "which --lossless forbids"),
        (("--temperature", "0"), "at temperature 0 nothing is drawn"),
    ],
)
def test_what_an_audit_of_rounds_cannot_do_is_refused_before_a_model_loads(
    given: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["audit", "--white-box", "--target", "no_such_model", *given]) == cli.EXIT_USAGE
    error = capsys.readouterr().err.splitlines()
    assert said in error[-1] and len(error) == 1
