"""`audit --black-box` from the command line: verdict, exit code, what it keeps; and what it refuses
before any work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from draftproof.cli import main as cli

ENGINES = """
from dataclasses import replace
from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.models.hf import HFModel

model = HFModel.from_pretrained({folder!r}, dtype="float64")
decoder = SpeculativeDecoder(None, model)
asked = SamplingParams(max_tokens=32, ignore_eos=True)

def plain(prompt, seed):
    return decoder.generate(prompt, replace(asked, seed=seed)).token_ids

def warm(prompt, seed):
    return decoder.generate(prompt, replace(asked, seed=seed, temperature=1.5)).token_ids

def foreign(prompt, seed):
    return [9000]
"""


@pytest.fixture
def engines(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with three engines over the tiny target."""
    (tmp_path / "engines_under_audit.py").write_text(ENGINES.format(folder=str(target)))
    monkeypatch.syspath_prepend(tmp_path)
    return "engines_under_audit"


def test_an_exact_function_is_exact_and_what_it_showed_is_kept(engines, target, tmp_path, capsys):
    """False alarm: 1e-3 over the whole battery."""
    out = tmp_path / "kept"
    command = [
        "audit",
        "--black-box",
        f"{engines}:plain",
        "--target",
        str(target),
        "--dtype",
        "float32",
        "--max-tokens",
        "32",
    ]
    command += [
        "--num-texts",
        "30",
        "--size",
        "0.2",
        "--workload",
        "chat",
        "--out",
        str(out),
        "--json",
    ]
    assert cli.run(command) == 0
    printed = capsys.readouterr().out
    document = json.loads(printed.splitlines()[-1])
    assert document["outcome"] == "exact" and document["num_tokens"] == 960
    assert "exact within this size" in printed
    assert len((out / "samples.jsonl").read_text().splitlines()) == 30
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 2 and not re.search(r'(src|href)="http', page)
    assert "To see it again" in (out / "report.md").read_text()
    assert cli.run([*command[:-1], "--seed", "4"]) == 2
    assert "holds an audit with params" in capsys.readouterr().err


def test_a_function_at_another_temperature_is_not_exact_and_the_exit_code_says_so(
    engines, target, capsys
):
    """Power above 0.999."""
    command = [
        "audit",
        "--black-box",
        f"{engines}:warm",
        "--target",
        str(target),
        "--max-tokens",
        "32",
        "--num-texts",
        "30",
    ]
    assert cli.run([*command, "--workload", "chat"]) == 1
    assert "Likely cause: temperature" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--black-box",), "audits one engine"),
        (("--black-box", "a:b", "--url", "http://x"), "audits one engine"),
        (
            ("--black-box", "--url", "http://127.0.0.1:9", "--without-copy"),
            "name the engine without speculation",
        ),
        (
            ("--black-box", "--url", "x", "--without-copy", "--control", "y", "--target", "t"),
            "--target would be a local copy",
        ),
        (("--black-box", "a:b", "--until-sure", "--num-texts", "3"), "leave one of them out"),
        (("--black-box", "a:b", "--temperature", "0"), "nothing to test"),
        (("--black-box", "a:b", "-k", "3"), "-k does nothing with --black-box"),
        (("--self-test", "--target", "t"), "--target does nothing with --self-test"),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_is_loaded(
    arguments: tuple[str, ...], said: str, refused: Callable[..., str]
) -> None:
    assert said in refused("audit", *arguments)


def test_a_server_that_is_down_no_function_and_foreign_ids_leave_nothing_behind(
    engines, target, tmp_path, refused
):
    out = tmp_path / "kept"
    common = [
        "audit",
        "--black-box",
        "--target",
        target,
        "--max-tokens",
        "32",
        "--workload",
        "chat",
        "--out",
        out,
    ]
    assert "cannot be reached" in refused(*common, "--url", "http://127.0.0.1:9")
    before = ("--target", tmp_path / "no model")  # the server is asked before a model is loaded
    assert "cannot be reached" in refused(*common, *before, "--url", "http://127.0.0.1:9")
    assert "engines_under_audit has no 'nothing'" in refused(*common, f"{engines}:nothing")
    assert not out.exists()
    assert "holds token 9000" in refused(*common, f"{engines}:foreign")
    assert not out.exists()


def test_an_interrupted_audit_says_how_it_goes_on_and_a_file_may_be_named(
    engines, target, tmp_path, capsys
):
    """The function is of a file, and Ctrl-C comes in its third text."""
    (tmp_path / "stopping.py").write_text(
        ENGINES.format(folder=str(target))
        + "calls = []\n"
        + "def stopping(prompt, seed):\n"
        + "    calls.append(seed)\n"
        + "    if len(calls) == 3:\n"
        + "        raise KeyboardInterrupt\n"
        + "    return plain(prompt, seed)\n"
    )
    out, file = tmp_path / "kept", f"{tmp_path / 'stopping.py'}:stopping"
    command = ["audit", "--black-box", file, "--target", str(target), "--max-tokens", "32"]
    command += ["--num-texts", "4", "--workload", "chat", "--out", str(out)]
    assert cli.run(command) == 130
    assert "the same command goes on with the texts in" in capsys.readouterr().err
    kept = (out / "samples.jsonl").read_text().splitlines()
    assert len(kept) == 2
    assert cli.run(command) == 0
    assert (out / "samples.jsonl").read_text().splitlines()[:2] == kept


def test_a_key_is_not_shown():
    from draftproof.cli.key import without_key

    line = ["audit", "--api-key", "secret", "--url", "u"]
    assert without_key(line) == ["audit", "--api-key", "KEY", "--url", "u"]
    assert without_key(["--api-key=secret", "x"]) == ["--api-key=KEY", "x"]
