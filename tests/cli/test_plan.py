"""`plan` end to end on tiny models: the keys, the files, the pages, the sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli import main as cli
from draftproof.core.rules import LOSSLESS, RULES

Document = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
SMALL = ("--max-tokens", 8, "--dtype", "float32", "--threads", 1)


def test_plan_has_its_keys_and_writes_a_page(
    target: Path, draft: Path, prompts: Path, tmp_path: Path, document: Document
) -> None:
    again = (
        "--method",
        "ngram",
        "--speculative-config",
        '{"method": "ngram", "num_speculative_tokens": 3}',
    )
    flags = ("--draft", draft, *again, "-k", 1, "--temperature", 1, "--seed", 2)
    files = ("--out", tmp_path / "p.json", "--html", tmp_path / "p.html")
    got = document("plan", "--target", target, "--prompts", prompts, *SMALL, *flags, *files)
    assert {c["num_speculative_tokens"] for c in got["choices"]} == {1, 3} and len(
        got["choices"]
    ) == 4
    assert set(got["alpha"]) == {"mean", "low", "high"} and got["verify_ratio"]["1"] == 1
    assert (got["best"] is None) == (got["speculative_config"] is None)
    assert (tmp_path / "p.html").read_text().count("<svg") == 3
    assert json.loads((tmp_path / "p.json").read_text())["headline"] == got["headline"]


def test_plan_takes_trees_rules_batches_and_penalties(
    target: Path, draft: Path, prompts: Path, document: Document
) -> None:
    flags = (
        "--draft",
        draft,
        "--tree",
        "2,1",
        "--tree",
        "best",
        "-k",
        2,
        "--temperature",
        1,
        "--batch",
        2,
        "--answers",
        1,
    )
    config = json.dumps({"method": "ngram", "prompt_lookup_max": 2})
    more = (
        "--speculative-config",
        config,
        "--repetition-penalty",
        1.2,
        "--stop",
        "zzz",
        "--rule",
        "traversal",
    )
    got = document("plan", "--target", target, "--prompts", prompts, *SMALL, *flags, *more)
    trees = [c for c in got["choices"] if c["tree"] is not None]
    assert [-1, -1, 0, 1] in [c["tree"] for c in trees] and {
        d["method"] for d in got["drafters"]
    } == {"draft_model", "ngram"}
    assert got["params"]["repetition_penalty"] == 1.2 and all(
        d["batch"] == 2 for d in got["drafters"]
    )
    assert any("batch 2" in note for note in got["notes"])


def test_every_rule_is_foretold_and_measured(
    target: Path, draft: Path, prompts: Path, document: Document
) -> None:
    """Trees under every rule for trees, chains under the other two; the lossy one is measured,
    under its name."""
    all_rules = [{"method": "draft_model", "model": str(draft), "rule": rule} for rule in LOSSLESS]
    trees = [config | {"tree": "2,1"} for config in all_rules if RULES[config["rule"]].trees]
    chains = [config for config in all_rules if not RULES[config["rule"]].trees]
    common = (
        "--target",
        target,
        "--prompts",
        prompts,
        *SMALL,
        "--temperature",
        1,
        "--seed",
        1,
        "--per-workload",
        1,
    )
    asked = [
        word for config in chains + trees for word in ("--speculative-config", json.dumps(config))
    ]
    got = document("plan", *common, "-k", 2, "--answers", 1, *asked)
    found = {(choice["drafter"].split()[-1], choice["tree"] is None) for choice in got["choices"]}
    assert found == {(rule, not RULES[rule].trees) for rule in LOSSLESS} and len(trees) == 6
    assert all(1 <= choice["tokens_per_round"] <= 3 for choice in got["choices"])
    configs = [
        config | ({} if "tree" in config else {"num_speculative_tokens": 2})
        for config in chains + trees
    ]
    lossy = {
        "method": "draft_model",
        "model": str(draft),
        "num_speculative_tokens": 2,
        "rule": "typical",
    }
    arms = [word for config in [*configs, lossy] for word in ("--arm", json.dumps(config))]
    measured = document("bench", *common, "--repeat", 1, *arms)["arms"][1:]
    assert [arm["stats"]["rule"] for arm in measured] == [
        *(config["rule"] for config in configs),
        "typical (lossy)",
    ]
    assert (
        measured[-1]["name"] == "draft_model k=2 typical (lossy)"
        and not measured[-1]["stats"]["lossless"]
    )


def test_plan_takes_every_drafter_that_works_on_the_target(
    target: Path, prompts: Path, document: Document
) -> None:
    """A slice of the target is timed and read as a draft model; recycling is told the rows, and its
    tree costs its nodes."""
    early = '{"method": "early_exit", "early_exit_layers": 1}'
    flags = (
        "--speculative-config",
        early,
        "--method",
        "recycling",
        "--temperature",
        0.8,
        "--seed",
        1,
        "-k",
        2,
    )
    got = document("plan", "--target", target, "--prompts", prompts, *SMALL, *flags)
    found = {drafter["method"]: drafter for drafter in got["drafters"]}
    assert (
        found["early_exit"]["cost_ratio"] > 0
        and found["early_exit"]["share_of_positions_with_draft"] == 1
    )
    assert found["recycling"]["cost_ratio"] == 0 and len(found["recycling"]["verify_ratio"]) > 3


def test_plan_makes_a_schedule_by_batch_size(
    target: Path, prompts: Path, tmp_path: Path, document: Document
) -> None:
    flags = ("--method", "ngram", "-k", 1, "-k", 2, "--batch", "1,2", "--html", tmp_path / "p.html")
    got = document("plan", "--target", target, "--prompts", prompts, *SMALL, *flags)
    schedule = got["by_batch"]["num_speculative_tokens_per_batch_size"]
    assert (
        schedule[0][0] == 1
        and schedule[-1][1] == 2
        and [row["batch"] for row in got["by_batch"]["rows"]] == [1, 2]
    )
    if got["speculative_config"] is not None:
        assert got["speculative_config"]["num_speculative_tokens_per_batch_size"] == schedule
    assert (tmp_path / "p.html").read_text().count("<svg") == 4
    asked = document("plan", "--alpha", 0.8, "--card", "H100-SXM", "--batch", "1,256")
    assert len(asked["by_batch"]["rows"]) == 2


def test_plan_asks_later_turns(
    target: Path, tmp_path: Path, document: Document, refused: Refused
) -> None:
    file = tmp_path / "spec_bench.jsonl"
    file.write_text(
        json.dumps(
            {"question_id": 81, "category": "writing", "turns": ["the cat sat", "and the dog?"]}
        )
    )
    common = ("plan", "--target", target, "--prompts", file, *SMALL, "-k", 2, "--stop", "zzz")
    got = document(*common)
    assert [p["where"].endswith("next turn") for p in got["prompts"]] == [False, True]
    assert len(document(*common, "--turns", "first")["prompts"]) == 1
    assert "allowed: first, all" in refused(*common, "--turns", "second")


def test_a_recommendation_says_how_other_prompts_may_fare(
    target: Path, prompts: Path, document: Document
) -> None:
    got = document("plan", "--target", target, "--prompts", prompts, *SMALL, "-k", 2)
    for choice in got["choices"]:
        assert (
            choice["other_prompts"]["low"]
            <= choice["speedup"]["point"]
            <= choice["other_prompts"]["high"]
        )
    if got["best"] is not None and got["best"]["other_prompts"]["low"] < 1:
        assert any("on other prompts" in note for note in got["notes"])


@pytest.mark.parametrize(("ending", "code"), [(KeyboardInterrupt, 130), (cli.Terminated, 143)])
def test_an_interrupted_plan_says_that_nothing_was_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ending: type[BaseException],
    code: int,
) -> None:
    def ended(flags: object) -> None:
        raise ending

    monkeypatch.setattr("draftproof.cli.plan._from_models", ended)
    assert cli.run(["plan", "--method", "ngram", "--out", str(tmp_path / "a.json")]) == code
    assert capsys.readouterr().err.count("nothing was written") == 1 and not list(
        tmp_path.iterdir()
    )


def test_plan_without_models_loads_none(
    document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftproof.models.load.load_model", None)
    got = document(
        "plan", "--alpha", 0.8, "--cost-ratio", 0.11, "--verify-curve", "1:1,6:2.9", "-k", 5
    )
    assert got["best"]["speedup"]["point"] == pytest.approx(1.07, abs=0.005)
    assert document("plan", "--alpha", 0.2, "--cost-ratio", 0.9)["best"] is None


def test_plan_fits_80_columns(
    target: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("plan", "--target", target, "--prompts", prompts, *SMALL, "-k", 2)
    assert cli.run([str(a) for a in arguments]) == 0
    captured = capsys.readouterr()
    # for copying
    lines = [
        line for line in captured.out.splitlines() if not line.startswith("speculative_config")
    ]
    assert max(map(len, lines)) <= 80 and any("ngram" in line for line in lines)
    # though there is no terminal
    assert re.search(r"^0 of \d+: 1/\d+ timing passes, ngram$", captured.err, re.MULTILINE)


def test_plan_keeps_the_length_a_configuration_names_and_counts_no_answers_that_are_given(
    target: Path, tmp_path: Path, document: Document, refused: Refused
) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(
        json.dumps({"prompt": "the cat sat on", "answer": "the mat and the cat sat on the mat"})
    )
    common = ("plan", "--target", target, "--prompts", file, *SMALL)
    config = json.dumps({"method": "ngram", "num_speculative_tokens": 2})
    got = document(*common, "--speculative-config", config, "-k", 1)
    assert sorted(choice["num_speculative_tokens"] for choice in got["choices"]) == [1, 2]
    assert "an answer to every prompt" in refused(*common, "--answers", 2)
