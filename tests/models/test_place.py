"""Where a model is looked for: aloud, within a time limit, and before anything is loaded."""

from __future__ import annotations

import threading

import huggingface_hub
import pytest

from draftproof.errors import UsageError
from draftproof.models import place
from tiny import llama


@pytest.fixture(autouse=True)
def _hub(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: None)


def test_a_hub_that_never_answers_is_given_up_within_the_limit(monkeypatch, capsys):
    """A look-up of a name, or an address after another, heeds none of a web client's limits."""
    silent = threading.Event()
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: silent.wait(60))
    monkeypatch.setattr(place, "HUB_SECONDS", 0.05)
    with pytest.raises(
        UsageError,
        match="nobody/nothing is not on this machine and the model hub cannot be reached",
    ):
        place.locate("nobody/nothing")
    assert capsys.readouterr().err == "draftproof: asking the model hub for nobody/nothing ...\n"
    assert not silent.is_set()
    silent.set()


def test_a_download_is_announced(monkeypatch, capsys):
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: "here")
    assert place.locate("someone/some-model") == ("someone/some-model", False)
    assert "its download may take minutes" in capsys.readouterr().err.splitlines()[-1]


def test_a_place_is_checked_without_work_and_without_the_hub_where_that_can_be(
    tmp_path, monkeypatch, capsys
):
    def refuse(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    monkeypatch.setattr(place, "converted_gguf", refuse)
    llama().save_pretrained(tmp_path / "model")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    for name in (tmp_path / "model", tmp_path / "model.gguf"):
        place.check_place(name)
    for name, message in {
        "nobody/nothing": "cannot be reached",
        str(tmp_path): "no config.json",
        "./absent": "no file",
    }.items():
        with pytest.raises(UsageError, match=message):
            place.check_place(name)
    capsys.readouterr()
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda *_, **__: "/cache/config.json"
    )
    place.check_place("nobody/nothing")
    assert capsys.readouterr().err == ""
