"""The programs under examples/, on tiny models: what they print, and how they refuse."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from draftproof import walkthrough
from tiny import llama
from tokenizers_in_code import plain_words

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


two_models = load("two_models")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A draft and a target as model folders with their tokenizer."""
    found = []
    for name, seed in (("draft", 3), ("target", 0)):
        folder = tmp_path_factory.mktemp(name)
        llama(seed=seed).save_pretrained(folder)
        plain_words().save_pretrained(folder)
        found.append(str(folder))
    return found[0], found[1]


def test_the_program_on_a_pair_and_on_one_model(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    draft, target = folders
    common = [
        "--target",
        target,
        "--prompt",
        "w1 w2 w1 w2",
        "--max-tokens",
        "12",
        "--device",
        "cpu",
    ]
    assert two_models.main(["--draft", draft, *common]) == 0
    printed = capsys.readouterr().out
    assert (
        f"target {target}, draft model {draft}" in printed
        and "--- speculative" in printed
        and "'drafted'" in printed
    )
    assert two_models.main([*common, "--num-draft", "2", "--temperature", "0"]) == 0
    printed = capsys.readouterr().out
    plain, fast = (part.split("\n")[1] for part in printed.split("---")[1:])
    assert "drafts by prompt lookup" in printed and plain == fast and len(plain.split()) == 16


def test_the_program_says_in_a_sentence_what_is_wrong(
    capsys: pytest.CaptureFixture[str], folders: tuple[str, str]
) -> None:
    assert two_models.main(["--target", "/nowhere/at/all"]) == 2
    assert capsys.readouterr().err == "two_models: there is no file or folder /nowhere/at/all\n"
    assert two_models.main(["--target", folders[1], "--temperature", "-1"]) == 2
    assert "temperature" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        two_models.main(["--draft", folders[0]])
    assert "--draft needs --target" in capsys.readouterr().err


def test_the_sweep_is_the_simulators(capsys: pytest.CaptureFixture[str]) -> None:
    assert two_models.main(["--sweep"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [float(line.split()[0]) for line in lines] == [0.5, 0.6, 0.7, 0.8, 0.9]
    for line, row in zip(lines, two_models.sweep(), strict=True):
        assert f"{row['tokens_mean']:.2f}" in line and f"{row['speedup_mean']:.2f}" in line


def test_the_round_is_the_packages(
    folders: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert two_models.speculative_generate is walkthrough.speculative_generate
    monkeypatch.setattr(two_models, "default_pair", lambda: folders)
    assert two_models.main(["--prompt", "w1 w2", "--max-tokens", "2", "--device", "cpu"]) == 0
