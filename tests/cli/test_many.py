"""`generate --file prompts.jsonl --out results.jsonl`: checked first, written as it goes, resumed
when interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from draftproof.cli import main as cli

LINES = [
    "the cat sat",
    {"prompt": "on the mat", "id": "second", "max_tokens": 5},
    {"messages": [{"role": "user", "content": "the dog"}], "temperature": 0.9, "seed": 4},
    {"prompt_token_ids": [10, 11, 12, 10, 11], "n": 2, "temperature": 1.0, "seed": 7},
]


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def results(path: Path) -> dict[int, dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({one["line"] for one in found}) == len(found)
    return {one["line"]: one for one in found}


def command(target: Path, prompts: Path, out: Path, *more: object) -> list[str]:
    settings = ("--dtype", "float32", "--temperature", 0, "--max-tokens", 12, "--batch-size", 2)
    return [
        str(a)
        for a in ("generate", "--target", target, "--file", prompts, "--out", out, *settings, *more)
    ]


def test_every_line_has_the_result_it_has_alone(
    target: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    document: Callable[..., dict[str, Any]],
) -> None:
    prompts, out = write(tmp_path / "prompts.jsonl", LINES), tmp_path / "results.jsonl"
    totals = document(*command(target, prompts, out))
    assert (totals["num_prompts"], totals["num_failed"], totals["batch_size"]) == (4, 0, 2)
    found = results(out)
    assert sorted(found) == [1, 2, 3, 4]
    assert found[2]["id"] == "second" and len(found[2]["token_ids"]) == 5
    assert found[3]["seed"] == 4
    assert [len(output["token_ids"]) for output in found[4]["outputs"]] == [12, 12]
    assert totals["num_tokens"] == sum(
        len(o["token_ids"]) for one in found.values() for o in one.get("outputs", [one])
    )
    alone = document(
        "generate",
        LINES[0],
        "--target",
        target,
        "--dtype",
        "float32",
        "--temperature",
        0,
        "--max-tokens",
        12,
    )
    assert found[1]["text"] == alone["text"] and found[1]["token_ids"] == alone["token_ids"]


def test_memory_is_announced_before_and_progress_told(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = write(tmp_path / "prompts.jsonl", LINES)
    assert cli.run(command(target, prompts, tmp_path / "results.jsonl")) == 0
    told = capsys.readouterr().err
    assert "4 prompts, 2 at a time; at most " in told
    assert "MB beside the weights" in told
    assert "0 of 4: prompts" in told


def test_a_cut_off_line_and_missing_results_are_made_again(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, out = write(tmp_path / "prompts.jsonl", LINES), tmp_path / "results.jsonl"
    assert cli.run(command(target, prompts, out)) == 0
    whole = results(out)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text(lines[0] + lines[2] + lines[1][: len(lines[1]) // 2])
    capsys.readouterr()
    assert cli.run(command(target, prompts, out)) == 0
    assert "2 of 4 results are in" in capsys.readouterr().err
    for number, result in results(out).items():
        assert result["token_ids"] == whole[number]["token_ids"]
    before = out.read_bytes()
    assert cli.run(command(target, prompts, out)) == 0
    assert out.read_bytes() == before


def test_killed_in_the_middle_it_goes_on(target: Path, tmp_path: Path) -> None:
    lines = [
        {"prompt": "the cat sat on the mat " * 3, "max_tokens": 200, "ignore_eos": True, "seed": i}
        for i in range(30)
    ]
    prompts, out = write(tmp_path / "prompts.jsonl", lines), tmp_path / "results.jsonl"
    arguments = [sys.executable, "-m", "draftproof", *command(target, prompts, out)]
    running = subprocess.Popen(arguments, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not (out.exists() and out.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    survived = [line for line in out.read_bytes().split(b"\n")[:-1]]
    assert 2 <= len(survived) < 30
    assert cli.run(command(target, prompts, out)) == 0
    assert len(results(out)) == 30
    assert set(survived) <= set(out.read_bytes().split(b"\n"))


def test_results_of_other_prompts_or_settings_are_not_taken(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, out = write(tmp_path / "prompts.jsonl", LINES), tmp_path / "results.jsonl"
    assert cli.run(command(target, prompts, out)) == 0
    assert cli.run(command(target, prompts, out, "--max-tokens", 13)) == 2
    assert "other prompts or settings" in capsys.readouterr().err
    write(prompts, list(reversed(LINES)))
    assert cli.run(command(target, prompts, out)) == 2
    out.write_text("my notes\n")
    assert cli.run(command(target, prompts, out)) == 2
    assert "no file of results" in capsys.readouterr().err
    assert out.read_text() == "my notes\n"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{not json", "line 2 is not JSON"),
        ("7", "line 2 is int"),
        ('{"id": 3}', "line 2 has no prompt"),
        ('{"prompt": "a", "messages": []}', "line 2 has prompt and messages"),
        ('{"prompt": ""}', "line 2: prompt is ''"),
        (
            '{"prompt": "a", "temprature": 1}',
            "line 2: 'temprature' is not a sampling parameter; did you mean temperature",
        ),
        ('{"prompt": "a", "top_p": 3}', "line 2: top_p"),
        ('{"prompt_token_ids": [99999]}', "line 2: token 0 of the prompt is 99999"),
    ],
)
def test_a_bad_line_is_refused_with_its_number_before_any_work(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, sentence: str
) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "results.jsonl"
    prompts.write_text('"the cat"\n' + line + "\n")
    assert cli.run(command(target, prompts, out)) == 2
    assert f"{prompts} {sentence}" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--show",), "--show is for one prompt"),
        (("--compare",), "--compare is for one prompt"),
        (("--record", "x.jsonl"), "--record is for one prompt"),
        (("a prompt",), "given twice"),
    ],
)
def test_flags_of_one_prompt_are_refused(
    target: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[object, ...],
    sentence: str,
) -> None:
    prompts = write(tmp_path / "prompts.jsonl", LINES)
    assert cli.run(command(target, prompts, tmp_path / "results.jsonl", *more)) == 2
    assert sentence in capsys.readouterr().err


def test_files_that_do_not_fit(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = write(tmp_path / "prompts.jsonl", LINES)
    assert cli.run(["generate", "--file", str(prompts)]) == 2
    assert "--out FILE" in capsys.readouterr().err
    assert cli.run(["generate", "a prompt", "--out", str(tmp_path / "x")]) == 2
    assert "--out is for many prompts" in capsys.readouterr().err
    assert cli.run(["generate", "a prompt", "--batch-size", "2"]) == 2
    assert "--batch-size is for many prompts" in capsys.readouterr().err
    assert cli.run(command(target, prompts, prompts)) == 2
    assert "the file of prompts itself" in capsys.readouterr().err
    assert cli.run(command(target, prompts, tmp_path / "none" / "x")) == 2
    assert "a folder that exists" in capsys.readouterr().err
    assert cli.run(command(target, tmp_path / "none.jsonl", tmp_path / "x")) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert cli.run(command(target, write(tmp_path / "empty.jsonl", []), tmp_path / "x")) == 2
    assert "holds no prompt" in capsys.readouterr().err


def test_a_run_whose_costs_are_measured_anew_is_resumed(
    target: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    document: Callable[..., dict[str, Any]],
) -> None:
    prompts, out = write(tmp_path / "prompts.jsonl", LINES[:2]), tmp_path / "results.jsonl"
    adapts = ("--speculative-config", '{"method": "ngram", "adaptive": "survival"}')
    document(*command(target, prompts, out, *adapts))
    out.write_text(out.read_text().splitlines(keepends=True)[0])
    totals = document(*command(target, prompts, out, *adapts))
    assert (totals["num_resumed"], sorted(results(out))) == (1, [1, 2])


def test_a_draft_length_of_zero_for_the_batch_size_is_kept_and_said(
    target: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    document: Callable[..., dict[str, Any]],
) -> None:
    prompts, out = write(tmp_path / "prompts.jsonl", LINES[:1] * 2), tmp_path / "results.jsonl"
    schedule = {"method": "ngram", "num_speculative_tokens_per_batch_size": [[1, 1, 4], [2, 8, 0]]}
    document(*command(target, prompts, out, "--speculative-config", json.dumps(schedule)))
    for one in results(out).values():
        assert one["stats"]["num_draft_tokens"] == 0
        assert one["stats"]["notes"] == [
            "no drafts at batch size 2, as num_speculative_tokens_per_batch_size says"
        ]
    alone = document(
        *command(
            target,
            prompts,
            tmp_path / "one.jsonl",
            "--speculative-config",
            json.dumps(schedule),
            "--batch-size",
            1,
        )
    )
    assert alone["batch_size"] == 1
    assert all(one["stats"]["notes"] == [] for one in results(tmp_path / "one.jsonl").values())


def test_a_line_has_the_options_of_its_chat(thinking: Path, tools: Path, tmp_path: Path) -> None:
    user = {"role": "user", "content": "the cat"}
    schemas = json.loads(tools.read_text())
    lines = [
        {"messages": [user]},
        {"messages": [user], "tools": schemas, "chat_template_kwargs": {"enable_thinking": False}},
        {
            "messages": [user, {"role": "assistant", "content": "It sat"}],
            "continue_final_message": True,
        },
        {"messages": [user], "add_generation_prompt": False},
    ]
    out = tmp_path / "results.jsonl"
    assert cli.run(command(thinking, write(tmp_path / "prompts.jsonl", lines), out)) == 0
    words = AutoTokenizer.from_pretrained(thinking)
    texts = ("{}<|assistant|>", "[sit]{}<|assistant|>(no)", "{}<|assistant|>It sat", "{}")
    lengths = [
        len(words.encode(text.format("<|user|>the cat<|end|>"), add_special_tokens=False))
        for text in texts
    ]
    found = results(out)
    assert [found[number]["num_prompt_tokens"] for number in (1, 2, 3, 4)] == lengths


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            {"messages": [{"role": "system", "content": "x"}]},
            "line 2: the model's chat template refuses this chat: System role",
        ),
        ({"messages": [{"role": "user", "content": "x"}], "tools": []}, "line 2: tools is []"),
        ({"prompt_token_ids": [3], "tools": [{}]}, "line 2: tools is of a chat"),
        ({"messages": [{"role": "user"}]}, "line 2: chat message 0 needs"),
    ],
)
def test_a_chat_that_cannot_be_rendered_is_told_with_its_line(
    thinking: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: Any, sentence: str
) -> None:
    prompts = write(tmp_path / "prompts.jsonl", ["the cat", line])
    assert cli.run(command(thinking, prompts, tmp_path / "results.jsonl")) == 2
    assert f"{prompts} {sentence}" in capsys.readouterr().err
