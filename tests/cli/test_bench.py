"""`bench` and `report` end to end on tiny models: the keys, the files, the pages, the
sentences."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof.bench.arms import OurArm
from draftproof.bench.runs import Run
from draftproof.cli import main as cli
from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError

Document = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
SMALL = ("--max-tokens", 8, "--dtype", "float32", "--threads", 1)


def test_bench_has_its_keys_and_raw_data(
    target: Path, draft: Path, prompts: Path, tmp_path: Path, document: Document
) -> None:
    arms = ("--arm", "ngram:3", "--arm", "draft_model:2", "--arm", "hf-lookup:3")
    got = document(
        *("bench", "--target", target, "--draft", draft, "--prompts", prompts, *SMALL, *arms),
        *("--out", tmp_path / "a.json", "--html", tmp_path / "a.html", "--repeat", 1),
    )
    assert [arm["name"] for arm in got["arms"]] == [
        "plain",
        "ngram k=3",
        "draft_model k=2",
        "transformers lookup k=3",
    ]
    for arm in got["arms"]:
        assert arm["tokens_per_second"] > 0 and set(arm["ratio_to_plain"]) == {
            "median",
            "low",
            "high",
        }
        assert arm["stats"]["num_emitted_tokens"] == 24 and len(arm["runs"]) == 3
    assert got["arms"][0]["ratio_to_plain"]["median"] == 1
    where = got["provenance"]
    assert {"command", "commit", "threads", "seed", "torch", "processor", "model_hashes"} <= set(
        where
    )
    assert len(where["model_hashes"]["target"]) == len(where["model_hashes"]["draft"]) == 64
    assert where["model_hashes"]["target"] != where["model_hashes"]["draft"]
    assert json.loads((tmp_path / "a.json").read_text())["arms"][1]["runs"][0]["rounds"]
    page = (tmp_path / "a.html").read_text()
    assert page.count("<svg") == 1 and "ngram k=3" in page and "multi-turn" not in page
    assert list(got["arms"][0]["tasks"]) == ["qa", "writing", "stem"], "as the file names them"


def test_synthetic_acceptance_says_so_on_every_row(
    target: Path, draft: Path, prompts: Path, document: Document
) -> None:
    flags = (
        "--draft",
        draft,
        "--arm",
        "draft_model:2",
        "--synthetic-alpha",
        "1.0",
        "--repeat",
        1,
        "--per-workload",
        1,
    )
    got = document("bench", "--target", target, "--prompts", prompts, *SMALL, *flags)
    assert got["arms"][1]["name"] == "draft_model k=2 (synthetic acceptance 1, lossy)"
    assert (
        got["arms"][1]["stats"]["lossless"] is False
        and got["arms"][1]["stats"]["draft_acceptance_rate"] == 1.0
    )


def test_bench_asks_later_turns_and_shows_acceptance(
    target: Path, tmp_path: Path, document: Document
) -> None:
    file = tmp_path / "spec_bench.jsonl"
    file.write_text(
        json.dumps(
            {"question_id": 81, "category": "writing", "turns": ["the cat sat", "and the dog?"]}
        )
    )
    common = (
        "bench",
        "--target",
        target,
        "--prompts",
        file,
        *SMALL,
        "--arm",
        "ngram:2",
        "--repeat",
        1,
        "--stop",
        "zzz",
    )
    got = document(*common, "--presence-penalty", 0.1)
    assert len(got["prompts"]) == 2 and got["prompts"][1]["where"].endswith("line 1, next turn")
    assert got["prompts"][1]["num_tokens"] > got["prompts"][0]["num_tokens"]
    assert len(document(*common, "--turns", "first")["prompts"]) == 1


def test_bench_fits_80_columns(
    target: Path, draft: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ("--draft", draft, "--arm", "ngram:10", "--arm", "draft_model:2,2,1")
    assert (
        cli.run(
            [
                str(a)
                for a in (
                    "bench",
                    "--target",
                    target,
                    "--prompts",
                    prompts,
                    *SMALL,
                    *arms,
                    "--repeat",
                    1,
                )
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert (
        max(map(len, out.splitlines())) <= 80
        and "Latency, acceptance and memory" in out
        and "draft_model tree 2,2,1" in out
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_bench_that_is_ended_keeps_what_it_measured(
    number: signal.Signals,
    code: int,
    target: Path,
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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
    before = (
        signal.getsignal(signal.SIGTERM),
        signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    cli.heed_termination()
    try:
        flags = (
            "bench",
            "--target",
            target,
            "--prompts",
            prompts,
            *SMALL,
            "--repeat",
            1,
            "--out",
            tmp_path / "a.json",
        )
        assert cli.run([str(flag) for flag in flags]) == code
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    kept = json.loads((tmp_path / "a.json").read_text())
    assert [len(arm["runs"]) for arm in kept["arms"]] == [1, 1]
    assert "1 of 3 prompts" in kept["flags"][0]["message"]


def test_a_bench_whose_arm_fails_keeps_what_was_measured_and_says_why(
    target: Path,
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls: list[int] = []

    def run(self: OurArm, ids: tuple[int, ...], params: SamplingParams) -> Run:
        calls.append(1)
        if len(calls) == 6:
            raise UsageError("the server went away")
        return whole(self, ids, params)

    whole = OurArm.run
    monkeypatch.setattr(OurArm, "run", run)
    flags = (
        "bench",
        "--target",
        target,
        "--prompts",
        prompts,
        *SMALL,
        "--repeat",
        1,
        "--out",
        tmp_path / "a.json",
    )
    assert cli.run([str(flag) for flag in flags]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "draftproof: the server went away"
    kept = json.loads((tmp_path / "a.json").read_text())
    assert [len(arm["runs"]) for arm in kept["arms"]] == [1, 1]
    assert (
        "an arm failed (the server went away): every arm ran 1 of 3" in kept["flags"][0]["message"]
    )


def test_the_weights_of_every_model_are_in_the_result(
    target: Path, draft: Path, prompts: Path, document: Document, refused: Refused
) -> None:
    """Two draft models are arms of their own; a configuration's model counts as one that --draft
    names."""
    configs = [
        {"method": "draft_model", "model": str(model), "num_speculative_tokens": 2}
        for model in (draft, target)
    ]
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
    assert "there is no folder no/such/head" in refused(
        "plan", "--target", target, "--speculative-config", missing
    )


def test_report_puts_runs_on_one_page(tmp_path: Path, document: Document, refused: Refused) -> None:
    for name, alpha in (("a", 0.8), ("b", 0.6)):
        document("plan", "--alpha", alpha, "--cost-ratio", 0.1, "--out", tmp_path / f"{name}.json")
    page = tmp_path / "page.html"
    assert (
        cli.run(["report", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--html", str(page)])
        == 0
    )
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
    assert "the page would replace" in refused(
        "report", tmp_path / "a.json", "--html", tmp_path / "a.json"
    )
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.json").write_text((tmp_path / "b.json").read_text())
    assert (
        cli.run(
            [
                "report",
                str(tmp_path / "a.json"),
                str(tmp_path / "more" / "a.json"),
                "--html",
                str(page),
            ]
        )
        == 0
    )
    assert (
        f"{tmp_path / 'a.json'}: " in page.read_text()
        and f"{tmp_path / 'more' / 'a.json'}: " in page.read_text()
    )


def test_report_holds_a_plan_against_a_bench(
    target: Path, prompts: Path, tmp_path: Path, document: Document
) -> None:
    common = ("--target", target, "--prompts", prompts, *SMALL)
    document("plan", *common, "--method", "ngram", "-k", 2, "--out", tmp_path / "plan.json")
    document(
        "bench",
        *common,
        "--arm",
        "ngram:2",
        "--arm",
        "ngram:3",
        "--repeat",
        1,
        "--out",
        tmp_path / "bench.json",
    )
    page = tmp_path / "page.html"
    assert (
        cli.run(
            [
                "report",
                str(tmp_path / "plan.json"),
                str(tmp_path / "bench.json"),
                "--html",
                str(page),
            ]
        )
        == 0
    )
    text = page.read_text()
    assert (
        "Foretold and measured" in text
        and "of 1 measured speedups" in text
        and "plan.json, bench.json" in text
    )


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
        (
            ("plan", "--alpha", "0.5", "--card", "H100-SXM", "--verify-curve", "1:1,20:2"),
            "both say what verification costs",
        ),
        (("plan", "--alpha", "1.5"), "alpha must be between 0 and 1"),
        (("plan", "--method", "oracle"), "method 'oracle' is unknown"),
        (("plan", "--html", "/"), "is a folder"),
        (("plan", "--alpha", "0.5", "--tree", "2,2"), "--tree needs a model"),
        (("plan", "--batch", "4,2"), "several that ascend"),
        (("plan", "--alpha", "0.5", "--turns", "first"), "--turns needs a model"),
        (("plan", "--method", "lookahead"), "measure it with bench"),
        (("plan", "--rule", "typical"), "cannot foretell rule typical (lossy)"),
        (
            ("plan", "--alpha", "0.5", "--repetition-penalty", "1.1"),
            "--repetition-penalty needs a model",
        ),
        (("plan", "--tree", "2,x"), "children per level"),
        (("plan", "--speculative-config", '{"num_speculative_tokens": 2}'), "names no method"),
        (("plan", "--rule", "best"), "rule is 'best'"),
        (("plan", "--logit-bias", "[1]"), "must be a JSON object"),
        (
            ("plan", "--rule", "block", "--speculative-config", '{"method": "ngram"}'),
            "name the rule in --speculative-config",
        ),
        (("plan", "--alpha", "0.5", "--threads", "2"), "--threads says how a model runs"),
        (("plan", "--alpha", "0.5", "--dtype", "float32"), "--dtype says how a model runs"),
        (
            (
                "plan",
                "-k",
                "3",
                "--speculative-config",
                '{"method": "draft_model", "model": "x", "tree": "2,1"}',
            ),
            "-k is the length of a chain",
        ),
        (
            ("plan", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 0}'),
            "a length of 0",
        ),
        (("doctor", "--dtype", "float32"), "--dtype is what a target is loaded in"),
        (("export", "vllm", "x", "-k", "0"), "-k"),
        (("bench", "--turns", "second"), "allowed: first, all"),
        (("bench", "--presence-penalty", "9"), "presence_penalty"),
        (
            ("bench", "--draft", "x", "--arm", '{"method": "draft_model", "model": "y"}'),
            "--draft does nothing",
        ),
        (("bench", "--arm", "ngram:4", "--arm", "ngram:4"), "two arms are called 'ngram k=4'"),
        (
            ("bench", "--arm", "hf-plain", "--presence-penalty", "0.5"),
            "do not take presence_penalty",
        ),
        (
            ("bench", "--arm", "http://127.0.0.1:9", "--logit-bias", '{"3": 1}'),
            "does not send logit_bias",
        ),
        (("bench", "--arm", "http://host:port"), "is not the address of a server"),
        (("bench", "--arm", "hf-plain", "--synthetic-alpha", "0.5"), "draftproof's own arms only"),
        (("bench", "--out", "x.html", "--html", "./x.html"), "the page would replace the result"),
        (("plan", "--batch", "1,300"), "1 to 256 sequences"),
        (
            ("plan", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 40}'),
            "from 1 to 32",
        ),
        (
            (
                "plan",
                "--speculative-config",
                '{"method": "draft_model", "model": "x", "tree": "2"}',
                "--batch",
                "1,2",
            ),
            "one size",
        ),
        (
            (
                "plan",
                "--alpha",
                "0.5",
                "--card",
                "H100-SXM",
                "--cost-ratio",
                "0.1",
                "--draft-shape",
                "Llama-3.2-1B",
            ),
            "both say what a draft step costs",
        ),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: tuple[str, ...], said: str, refused: Refused
) -> None:
    assert said in refused(*arguments)


def test_a_wrong_line_and_a_long_prompt_are_named(
    target: Path, tmp_path: Path, refused: Refused
) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "the cat"}\n{"text": 1}\n')
    assert "line 2 has no text" in refused("plan", "--target", target, "--prompts", file)
    file.write_text(json.dumps({"prompt": "cat " * 600}))
    assert "line 1: the prompt has" in refused(
        "bench", "--target", target, "--prompts", file, *SMALL
    )
