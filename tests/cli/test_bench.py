"""`bench`, `plan` and `report` end to end on tiny models: the keys, the files, the pages, the sentences."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.bench.arms import OurArm
from draftproof.bench.runs import Run
from draftproof.cli import main as cli
from draftproof.core.params import SamplingParams
from draftproof.core.rules import LOSSLESS, RULES
from draftproof.errors import UsageError

Document = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
SMALL = ("--max-tokens", 8, "--dtype", "float32", "--threads", 1)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    lines = [{"prompt": "the cat sat on the mat and the cat sat on the", "category": c} for c in ("qa", "writing", "stem")]
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


def test_bench_has_its_keys_and_raw_data(target: Path, draft: Path, prompts: Path, tmp_path: Path, document: Document) -> None:
    arms = ("--arm", "ngram:3", "--arm", "draft_model:2", "--arm", "hf-lookup:3")
    got = document(
        *("bench", "--target", target, "--draft", draft, "--prompts", prompts, *SMALL, *arms),
        *("--out", tmp_path / "a.json", "--html", tmp_path / "a.html", "--repeat", 1),
    )
    assert [arm["name"] for arm in got["arms"]] == ["plain", "ngram k=3", "draft_model k=2", "transformers lookup k=3"]
    for arm in got["arms"]:
        assert arm["tokens_per_second"] > 0 and set(arm["ratio_to_plain"]) == {"median", "low", "high"}
        assert arm["stats"]["num_emitted_tokens"] == 24 and len(arm["runs"]) == 3
    assert got["arms"][0]["ratio_to_plain"]["median"] == 1
    where = got["provenance"]
    assert {"command", "commit", "threads", "seed", "torch", "processor", "model_hashes"} <= set(where)
    assert len(where["model_hashes"]["target"]) == len(where["model_hashes"]["draft"]) == 64
    assert where["model_hashes"]["target"] != where["model_hashes"]["draft"]
    assert json.loads((tmp_path / "a.json").read_text())["arms"][1]["runs"][0]["rounds"]
    page = (tmp_path / "a.html").read_text()
    assert page.count("<svg") == 1 and "ngram k=3" in page and "multi-turn" not in page
    assert list(got["arms"][0]["tasks"]) == ["qa", "writing", "stem"], "as the file names them"


def test_synthetic_acceptance_says_so_on_every_row(target: Path, draft: Path, prompts: Path, document: Document) -> None:
    flags = ("--draft", draft, "--arm", "draft_model:2", "--synthetic-alpha", "1.0", "--repeat", 1, "--per-workload", 1)
    got = document("bench", "--target", target, "--prompts", prompts, *SMALL, *flags)
    assert got["arms"][1]["name"] == "draft_model k=2 (synthetic acceptance 1, lossy)"
    assert got["arms"][1]["stats"]["lossless"] is False and got["arms"][1]["stats"]["draft_acceptance_rate"] == 1.0


def test_plan_has_its_keys_and_writes_a_page(
    target: Path, draft: Path, prompts: Path, tmp_path: Path, document: Document
) -> None:
    again = ("--method", "ngram", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
    flags = ("--draft", draft, *again, "-k", 1, "--temperature", 1, "--seed", 2)
    files = ("--out", tmp_path / "p.json", "--html", tmp_path / "p.html")
    got = document("plan", "--target", target, "--prompts", prompts, *SMALL, *flags, *files)
    assert {c["num_speculative_tokens"] for c in got["choices"]} == {1, 3} and len(got["choices"]) == 4
    assert set(got["alpha"]) == {"mean", "low", "high"} and got["verify_ratio"]["1"] == 1
    assert (got["best"] is None) == (got["speculative_config"] is None)
    assert (tmp_path / "p.html").read_text().count("<svg") == 3
    assert json.loads((tmp_path / "p.json").read_text())["headline"] == got["headline"]


def test_plan_takes_trees_rules_batches_and_penalties(target: Path, draft: Path, prompts: Path, document: Document) -> None:
    flags = ("--draft", draft, "--tree", "2,1", "--tree", "best", "-k", 2, "--temperature", 1, "--batch", 2, "--answers", 1)
    config = json.dumps({"method": "ngram", "prompt_lookup_max": 2})
    more = ("--speculative-config", config, "--repetition-penalty", 1.2, "--stop", "zzz", "--rule", "traversal")
    got = document("plan", "--target", target, "--prompts", prompts, *SMALL, *flags, *more)
    trees = [c for c in got["choices"] if c["tree"] is not None]
    assert [-1, -1, 0, 1] in [c["tree"] for c in trees] and {d["method"] for d in got["drafters"]} == {"draft_model", "ngram"}
    assert got["params"]["repetition_penalty"] == 1.2 and all(d["batch"] == 2 for d in got["drafters"])
    assert any("batch 2" in note for note in got["notes"])


def test_every_rule_is_foretold_and_measured(target: Path, draft: Path, prompts: Path, document: Document) -> None:
    """Trees under every rule for trees, chains under the other two; the lossy one is measured, under its name."""
    all_rules = [{"method": "draft_model", "model": str(draft), "rule": rule} for rule in LOSSLESS]
    trees = [config | {"tree": "2,1"} for config in all_rules if RULES[config["rule"]].trees]
    chains = [config for config in all_rules if not RULES[config["rule"]].trees]
    common = ("--target", target, "--prompts", prompts, *SMALL, "--temperature", 1, "--seed", 1, "--per-workload", 1)
    asked = [word for config in chains + trees for word in ("--speculative-config", json.dumps(config))]
    got = document("plan", *common, "-k", 2, "--answers", 1, *asked)
    found = {(choice["drafter"].split()[-1], choice["tree"] is None) for choice in got["choices"]}
    assert found == {(rule, not RULES[rule].trees) for rule in LOSSLESS} and len(trees) == 6
    assert all(1 <= choice["tokens_per_round"] <= 3 for choice in got["choices"])
    configs = [config | ({} if "tree" in config else {"num_speculative_tokens": 2}) for config in chains + trees]
    lossy = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": 2, "rule": "typical"}
    arms = [word for config in [*configs, lossy] for word in ("--arm", json.dumps(config))]
    measured = document("bench", *common, "--repeat", 1, *arms)["arms"][1:]
    assert [arm["stats"]["rule"] for arm in measured] == [*(config["rule"] for config in configs), "typical (lossy)"]
    assert measured[-1]["name"] == "draft_model k=2 typical (lossy)" and not measured[-1]["stats"]["lossless"]


def test_plan_takes_every_drafter_that_works_on_the_target(target: Path, prompts: Path, document: Document) -> None:
    """A slice of the target is timed and read as a draft model; recycling is told the rows, and its tree costs its nodes."""
    early = '{"method": "early_exit", "early_exit_layers": 1}'
    flags = ("--speculative-config", early, "--method", "recycling", "--temperature", 0.8, "--seed", 1, "-k", 2)
    got = document("plan", "--target", target, "--prompts", prompts, *SMALL, *flags)
    found = {drafter["method"]: drafter for drafter in got["drafters"]}
    assert found["early_exit"]["cost_ratio"] > 0 and found["early_exit"]["share_of_positions_with_draft"] == 1
    assert found["recycling"]["cost_ratio"] == 0 and len(found["recycling"]["verify_ratio"]) > 3


def test_plan_makes_a_schedule_by_batch_size(target: Path, prompts: Path, tmp_path: Path, document: Document) -> None:
    flags = ("--method", "ngram", "-k", 1, "-k", 2, "--batch", "1,2", "--html", tmp_path / "p.html")
    got = document("plan", "--target", target, "--prompts", prompts, *SMALL, *flags)
    schedule = got["by_batch"]["num_speculative_tokens_per_batch_size"]
    assert schedule[0][0] == 1 and schedule[-1][1] == 2 and [row["batch"] for row in got["by_batch"]["rows"]] == [1, 2]
    if got["speculative_config"] is not None:
        assert got["speculative_config"]["num_speculative_tokens_per_batch_size"] == schedule
    assert (tmp_path / "p.html").read_text().count("<svg") == 4
    asked = document("plan", "--alpha", 0.8, "--card", "H100-SXM", "--batch", "1,256")
    assert len(asked["by_batch"]["rows"]) == 2


def test_plan_asks_later_turns(target: Path, tmp_path: Path, document: Document, refused: Refused) -> None:
    file = tmp_path / "spec_bench.jsonl"
    file.write_text(json.dumps({"question_id": 81, "category": "writing", "turns": ["the cat sat", "and the dog?"]}))
    common = ("plan", "--target", target, "--prompts", file, *SMALL, "-k", 2, "--stop", "zzz")
    got = document(*common)
    assert [p["where"].endswith("next turn") for p in got["prompts"]] == [False, True]
    assert len(document(*common, "--turns", "first")["prompts"]) == 1
    assert "allowed: first, all" in refused(*common, "--turns", "second")


def test_a_recommendation_says_how_other_prompts_may_fare(target: Path, prompts: Path, document: Document) -> None:
    got = document("plan", "--target", target, "--prompts", prompts, *SMALL, "-k", 2)
    for choice in got["choices"]:
        assert choice["other_prompts"]["low"] <= choice["speedup"]["point"] <= choice["other_prompts"]["high"]
    if got["best"] is not None and got["best"]["other_prompts"]["low"] < 1:
        assert any("on other prompts" in note for note in got["notes"])


def test_bench_asks_later_turns_and_shows_acceptance(target: Path, tmp_path: Path, document: Document) -> None:
    file = tmp_path / "spec_bench.jsonl"
    file.write_text(json.dumps({"question_id": 81, "category": "writing", "turns": ["the cat sat", "and the dog?"]}))
    common = ("bench", "--target", target, "--prompts", file, *SMALL, "--arm", "ngram:2", "--repeat", 1, "--stop", "zzz")
    got = document(*common, "--presence-penalty", 0.1)
    assert len(got["prompts"]) == 2 and got["prompts"][1]["where"].endswith("line 1, next turn")
    assert got["prompts"][1]["num_tokens"] > got["prompts"][0]["num_tokens"]
    assert len(document(*common, "--turns", "first")["prompts"]) == 1


def test_bench_fits_80_columns(target: Path, draft: Path, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = ("--draft", draft, "--arm", "ngram:10", "--arm", "draft_model:2,2,1")
    assert cli.run([str(a) for a in ("bench", "--target", target, "--prompts", prompts, *SMALL, *arms, "--repeat", 1)]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 and "Latency, acceptance and memory" in out and "draft_model tree 2,2,1" in out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_bench_that_is_ended_keeps_what_it_measured(
    number: signal.Signals, code: int, target: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two arms are warmed up and both have run the first prompt when the signal comes."""
    calls: list[int] = []

    def run(self: OurArm, ids: tuple[int, ...], params: SamplingParams) -> Run:
        calls.append(1)
        if len(calls) == 6:
            os.kill(os.getpid(), number)
        return whole(self, ids, params)

    whole = OurArm.run
    monkeypatch.setattr(OurArm, "run", run)
    before = signal.getsignal(signal.SIGTERM), signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.heed_termination()
    try:
        flags = ("bench", "--target", target, "--prompts", prompts, *SMALL, "--repeat", 1, "--out", tmp_path / "a.json")
        assert cli.run([str(flag) for flag in flags]) == code
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    kept = json.loads((tmp_path / "a.json").read_text())
    assert [len(arm["runs"]) for arm in kept["arms"]] == [1, 1]
    assert "1 of 3 prompts" in kept["flags"][0]["message"]


@pytest.mark.parametrize(("ending", "code"), [(KeyboardInterrupt, 130), (cli.Terminated, 143)])
def test_an_interrupted_plan_says_that_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ending: type[BaseException], code: int
) -> None:
    def ended(flags: object) -> None:
        raise ending

    monkeypatch.setattr("draftproof.cli.plan._from_models", ended)
    assert cli.run(["plan", "--method", "ngram", "--out", str(tmp_path / "a.json")]) == code
    assert capsys.readouterr().err.count("nothing was written") == 1 and not list(tmp_path.iterdir())


def test_a_bench_whose_arm_fails_keeps_what_was_measured_and_says_why(
    target: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []

    def run(self: OurArm, ids: tuple[int, ...], params: SamplingParams) -> Run:
        calls.append(1)
        if len(calls) == 6:
            raise UsageError("the server went away")
        return whole(self, ids, params)

    whole = OurArm.run
    monkeypatch.setattr(OurArm, "run", run)
    flags = ("bench", "--target", target, "--prompts", prompts, *SMALL, "--repeat", 1, "--out", tmp_path / "a.json")
    assert cli.run([str(flag) for flag in flags]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "draftproof: the server went away"
    kept = json.loads((tmp_path / "a.json").read_text())
    assert [len(arm["runs"]) for arm in kept["arms"]] == [1, 1]
    assert "an arm failed (the server went away): every arm ran 1 of 3" in kept["flags"][0]["message"]


def test_the_weights_of_every_model_are_in_the_result(
    target: Path, draft: Path, prompts: Path, document: Document, refused: Refused
) -> None:
    """Two draft models are arms of their own; a configuration's model counts as one that --draft names."""
    configs = [{"method": "draft_model", "model": str(model), "num_speculative_tokens": 2} for model in (draft, target)]
    arms = [word for config in configs for word in ("--arm", json.dumps(config))]
    common = ("--target", target, "--prompts", prompts, *SMALL, "--repeat", 1, "--per-workload", 1)
    got = document("bench", *common, *arms)
    names = [arm["name"] for arm in got["arms"]]
    assert names[1:] == [f"draft_model k=2 model={model.name}" for model in (draft, target)]
    hashes = got["provenance"]["model_hashes"]
    assert set(hashes) == {"target", str(draft), str(target)}
    assert hashes["target"] == hashes[str(target)] != hashes[str(draft)]
    missing = '{"method": "eagle3", "model": "no/such/head"}'
    assert "there is no folder no/such/head" in refused("bench", *common, "--arm", missing)
    assert "there is no folder no/such/head" in refused("plan", "--target", target, "--speculative-config", missing)


def test_plan_without_models_loads_none(document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftproof.models.load.load_model", None)
    got = document("plan", "--alpha", 0.8, "--cost-ratio", 0.11, "--verify-curve", "1:1,6:2.9", "-k", 5)
    assert got["best"]["speedup"]["point"] == pytest.approx(1.07, abs=0.005)
    assert document("plan", "--alpha", 0.2, "--cost-ratio", 0.9)["best"] is None


def test_plan_fits_80_columns(target: Path, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("plan", "--target", target, "--prompts", prompts, *SMALL, "-k", 2)
    assert cli.run([str(a) for a in arguments]) == 0
    captured = capsys.readouterr()
    lines = [line for line in captured.out.splitlines() if not line.startswith("speculative_config")]  # for copying
    assert max(map(len, lines)) <= 80 and any("ngram" in line for line in lines)
    assert re.search(r"^0 of \d+: 1/\d+ timing passes, ngram$", captured.err, re.MULTILINE)  # though there is no terminal


def test_report_puts_runs_on_one_page(tmp_path: Path, document: Document, refused: Refused) -> None:
    for name, alpha in (("a", 0.8), ("b", 0.6)):
        document("plan", "--alpha", alpha, "--cost-ratio", 0.1, "--out", tmp_path / f"{name}.json")
    page = tmp_path / "page.html"
    assert cli.run(["report", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--html", str(page)]) == 0
    text = page.read_text()
    assert "a.json" in text and "b.json" in text and "2 runs compared" in text and "<svg" in text
    (tmp_path / "c.json").write_text('{"rows": []}')
    assert "is no result of plan or bench" in refused("report", tmp_path / "c.json", "--html", page)
    (tmp_path / "d.json").write_text("{")
    assert "is not JSON" in refused("report", tmp_path / "d.json", "--html", page)
    assert "cannot be read" in refused("report", tmp_path / "absent.json", "--html", page)
    (tmp_path / "e.json").write_text('{"format": "draftproof.bench", "arms": []}')
    assert "it lacks level, flags" in refused("report", tmp_path / "e.json", "--html", page)
    again = tmp_path / "." / "a.json"
    assert "is named twice" in refused("report", tmp_path / "a.json", again, "--html", page)
    assert "the page would replace" in refused("report", tmp_path / "a.json", "--html", tmp_path / "a.json")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.json").write_text((tmp_path / "b.json").read_text())
    assert cli.run(["report", str(tmp_path / "a.json"), str(tmp_path / "more" / "a.json"), "--html", str(page)]) == 0
    assert f"{tmp_path / 'a.json'}: " in page.read_text() and f"{tmp_path / 'more' / 'a.json'}: " in page.read_text()


def test_report_holds_a_plan_against_a_bench(target: Path, prompts: Path, tmp_path: Path, document: Document) -> None:
    common = ("--target", target, "--prompts", prompts, *SMALL)
    document("plan", *common, "--method", "ngram", "-k", 2, "--out", tmp_path / "plan.json")
    document("bench", *common, "--arm", "ngram:2", "--arm", "ngram:3", "--repeat", 1, "--out", tmp_path / "bench.json")
    page = tmp_path / "page.html"
    assert cli.run(["report", str(tmp_path / "plan.json"), str(tmp_path / "bench.json"), "--html", str(page)]) == 0
    text = page.read_text()
    assert "Foretold and measured" in text and "of 1 measured speedups" in text and "plan.json, bench.json" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bench", "--arm", "fast"), "there is no arm 'fast'"),
        (("bench", "--arm", "draft_model:4"), "add --draft"),
        (("bench", "--draft", "x", "--arm", "ngram"), "--draft does nothing"),
        (("bench", "--synthetic-alpha", "two"), "--synthetic-alpha is a rate"),
        (("bench", "--top-p", "0.9"), "--top-p does nothing at temperature 0"),
        (("bench", "--prompts", "/nowhere.txt"), "cannot be read"),
        (("bench", "--workload", "poetry"), "no built-in workload"),
        (("bench", "--out", "/nowhere/a.json"), "there is no folder"),
        (("plan", "--method", "none"), "drafts nothing"),
        (("plan", "--cost-ratio", "0.1"), "add --alpha"),
        (("plan", "--alpha", "0.5", "--draft", "x"), "needs a model"),
        (("plan", "--alpha", "0.5", "--batch", "8"), "describes a --card"),
        (("plan", "--alpha", "0.5", "--card", "H100-SXM", "--verify-curve", "1:1,20:2"), "both say what verification costs"),
        (("plan", "--alpha", "1.5"), "alpha must be between 0 and 1"),
        (("plan", "--method", "oracle"), "method 'oracle' is unknown"),
        (("plan", "--html", "/"), "is a folder"),
        (("plan", "--alpha", "0.5", "--tree", "2,2"), "--tree needs a model"),
        (("plan", "--batch", "4,2"), "several that ascend"),
        (("plan", "--alpha", "0.5", "--turns", "first"), "--turns needs a model"),
        (("plan", "--method", "lookahead"), "measure it with bench"),
        (("plan", "--rule", "typical"), "cannot foretell rule typical (lossy)"),
        (("plan", "--alpha", "0.5", "--repetition-penalty", "1.1"), "--repetition-penalty needs a model"),
        (("plan", "--tree", "2,x"), "children per level"),
        (("plan", "--speculative-config", '{"num_speculative_tokens": 2}'), "names no method"),
        (("plan", "--rule", "best"), "rule is 'best'"),
        (("plan", "--logit-bias", "[1]"), "must be a JSON object"),
        (("plan", "--rule", "block", "--speculative-config", '{"method": "ngram"}'), "name the rule in --speculative-config"),
        (("plan", "--alpha", "0.5", "--threads", "2"), "--threads says how a model runs"),
        (("plan", "--alpha", "0.5", "--dtype", "float32"), "--dtype says how a model runs"),
        (
            ("plan", "-k", "3", "--speculative-config", '{"method": "draft_model", "model": "x", "tree": "2,1"}'),
            "-k is the length of a chain",
        ),
        (("plan", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 0}'), "a length of 0"),
        (("doctor", "--dtype", "float32"), "--dtype is what a target is loaded in"),
        (("export", "vllm", "x", "-k", "0"), "-k"),
        (("bench", "--turns", "second"), "allowed: first, all"),
        (("bench", "--presence-penalty", "9"), "presence_penalty"),
        (("bench", "--draft", "x", "--arm", '{"method": "draft_model", "model": "y"}'), "--draft does nothing"),
        (("bench", "--arm", "ngram:4", "--arm", "ngram:4"), "two arms are called 'ngram k=4'"),
        (("bench", "--arm", "hf-plain", "--presence-penalty", "0.5"), "do not take presence_penalty"),
        (("bench", "--arm", "http://127.0.0.1:9", "--logit-bias", '{"3": 1}'), "does not send logit_bias"),
        (("bench", "--arm", "http://host:port"), "is not the address of a server"),
        (("bench", "--arm", "hf-plain", "--synthetic-alpha", "0.5"), "draftproof's own arms only"),
        (("bench", "--out", "x.html", "--html", "./x.html"), "the page would replace the result"),
        (("plan", "--batch", "1,300"), "1 to 256 sequences"),
        (("plan", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 40}'), "from 1 to 32"),
        (
            ("plan", "--speculative-config", '{"method": "draft_model", "model": "x", "tree": "2"}', "--batch", "1,2"),
            "one size",
        ),
        (
            ("plan", "--alpha", "0.5", "--card", "H100-SXM", "--cost-ratio", "0.1", "--draft-shape", "Llama-3.2-1B"),
            "both say what a draft step costs",
        ),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: tuple[str, ...], said: str, refused: Refused) -> None:
    assert said in refused(*arguments)


def test_plan_keeps_the_length_a_configuration_names_and_counts_no_answers_that_are_given(
    target: Path, tmp_path: Path, document: Document, refused: Refused
) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps({"prompt": "the cat sat on", "answer": "the mat and the cat sat on the mat"}))
    common = ("plan", "--target", target, "--prompts", file, *SMALL)
    config = json.dumps({"method": "ngram", "num_speculative_tokens": 2})
    got = document(*common, "--speculative-config", config, "-k", 1)
    assert sorted(choice["num_speculative_tokens"] for choice in got["choices"]) == [1, 2]
    assert "an answer to every prompt" in refused(*common, "--answers", 2)


def test_a_wrong_line_and_a_long_prompt_are_named(target: Path, tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "the cat"}\n{"text": 1}\n')
    assert "line 2 has no text" in refused("plan", "--target", target, "--prompts", file)
    file.write_text(json.dumps({"prompt": "cat " * 600}))
    assert "line 1: the prompt has" in refused("bench", "--target", target, "--prompts", file, *SMALL)
