"""`draftproof simulate` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftproof.cli.main import run
from draftproof.core.records import Round
from draftproof.decode.record import RecordHeader, write_rounds

PROMISED = {"alpha", "num_speculative_tokens", "batch", "tokens_per_round", "speedup"}


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    assert run(["simulate", *arguments, "--json"]) == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(row.keys() >= PROMISED for row in found["rows"])
    return found  # type: ignore[no-any-return]


def test_the_default_is_the_batch_curve_with_its_constants(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = document([], capsys)
    rows = {(row["context"], row["batch"]): row for row in found["rows"]}
    assert rows[1024, 1]["speedup"] == pytest.approx(1.97, abs=0.03)
    assert rows[1024, 256]["speedup"] == pytest.approx(1.25, abs=0.02)
    assert rows[32768, 256]["speedup"] == pytest.approx(1.65, abs=0.02)
    constants = found["constants"]
    assert (
        constants["card"]["memory_bandwidth"] == 3.35e12
        and "data sheet" in constants["card"]["source"]
    )
    assert [model["name"] for model in constants["models"]] == ["Llama-3.1-8B", "Llama-3.2-1B"]
    assert constants["overhead_seconds"] == 1e-4


def test_batch_options(capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        "batch --alpha 0.6 --alpha 0.9 -k 3 --batch 1 --batch 8 --context 2048 --card L4 "
        "--target Qwen2.5-1.5B"
    )
    found = document(
        [
            *options.split(),
            "--draft",
            "Qwen2.5-0.5B",
            "--overhead-ms",
            "0",
            "--draft-context",
            "512",
        ],
        capsys,
    )
    assert [(row["alpha"], row["batch"]) for row in found["rows"]] == [
        (0.6, 1),
        (0.6, 8),
        (0.9, 1),
        (0.9, 8),
    ]
    assert {row["num_speculative_tokens"] for row in found["rows"]} == {3}
    assert (
        found["constants"]["overhead_seconds"] == 0 and found["constants"]["draft_context"] == 512
    )


def test_a_mixture_of_experts_tells_how_many_it_reads(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(
        ["--target", "Qwen3-30B-A3B", "--draft", "Qwen3-0.6B", "--batch", "1", "--batch", "64"],
        capsys,
    )
    assert found["rows"][0]["distinct_experts"] == 8
    assert any(
        "1.94x at 2, 3.64x at 4, 6.45x at 8, 15.74x at 64" in note for note in found["notes"]
    )


def test_generations_by_chance_with_the_documented_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = document(["generation"], capsys)
    assert [row["alpha"] for row in found["rows"]] == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert (
        found["total_tokens"] == 100 and found["num_simulations"] == 50 and found["num_draft"] == 5
    )
    assert found["draft_time_ms"] == 5 and found["target_time_ms"] == 100
    assert all(
        abs(row["speedup"] - row["speedup_expected"]) < 3 * row["speedup_std"] / 50**0.5
        for row in found["rows"]
    )


def test_generation_options(capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        "generation --alpha 1 -k 5 --tokens 60 --simulations 2 --draft-ms 11 --target-ms 100 "
        "--verify-curve 1:10,6:29"
    )
    (row,) = document([*options.split(), "--seed", "9"], capsys)["rows"]
    assert row["tokens_per_round"] == 6 and row["speedup"] == pytest.approx(6 / (2.9 + 0.55))


def test_other_acceptance_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = document(["generation", "--acceptance", "position:1,0", "--tokens", "40"], capsys)[
        "rows"
    ]
    assert [(row["num_speculative_tokens"], row["tokens_per_round"]) for row in rows] == [
        (1, 2.0),
        (2, 2.0),
    ]
    rows = document(
        ["generation", "--acceptance", "markov:1,1,0.5", "-k", "3", "--tokens", "40"], capsys
    )["rows"]
    assert [row["tokens_per_round"] for row in rows] == [4.0]
    path = tmp_path / "rounds.jsonl"
    played = Round(3, (1, 2), (-1, 0), (1, 5), ("draft", "replacement"), 1, 2)
    write_rounds(path, RecordHeader("t", "ngram", "token", (1,)), [played])
    rows = document(["generation", "--acceptance", f"replay:{path}", "--tokens", "40"], capsys)[
        "rows"
    ]
    assert [(row["num_speculative_tokens"], row["tokens_per_round"]) for row in rows] == [
        (1, 2.0),
        (2, 2.0),
    ]


@pytest.mark.parametrize(
    "arguments", [["batch"], ["generation"], ["generation", "--acceptance", "markov:0.9,0.3,0.9"]]
)
def test_tables_fit_80_columns_and_figures_are_written(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["simulate", *arguments, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines()) and "…" not in out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"simulate-{arguments[0]}.{kind}" for kind in ("png", "svg")
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["dice"], "there is no simulation 'dice'; choose batch or generation"),
        (["--tokens", "5"], "--tokens does not belong to `simulate batch`"),
        (
            ["generation", "--draft-context", "5"],
            "--draft-context does not belong to `simulate generation`",
        ),
        (["--alpha", "1.5"], "alpha must be between 0 and 1, got 1.5"),
        (["--card", "H900"], "there is no preset card 'H900'"),
        (["--batch", "0"], "batch must be at least 1"),
        (["--draft-context", "0"], "draft_context must be a whole number of at least 1"),
        (["-k", "-1"], "num_speculative_tokens must be a whole number of at least 0"),
        (
            ["generation", "--alpha", "0.5", "--acceptance", "position:1"],
            "--acceptance takes the place of --alpha",
        ),
        (["generation", "--acceptance", "coin"], "acceptance is position:0.9,0.7"),
        (
            ["generation", "--acceptance", "position:0.9", "-k", "2"],
            "given for 1 positions, 2 drafts were asked for",
        ),
        (
            ["generation", "--acceptance", "replay:/no/such/file"],
            "cannot be read as recorded rounds",
        ),
        (["generation", "--verify-curve", "fast"], "--verify-curve is tokens:time pairs"),
        (
            ["generation", "--verify-curve", "1:1,3:2"],
            "the verify curve covers passes over 1 to 3 tokens, asked for 6",
        ),
        (
            ["generation", "--simulations", "0"],
            "num_simulations must be a whole number of at least 1",
        ),
        (["generation", "--seed", "-1"], "seed must be a whole number of at least 0"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
