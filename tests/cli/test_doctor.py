"""`doctor`: what this machine and this pair can do, and why not more."""

from __future__ import annotations

import json

import pytest
import torch

from cache_families import mamba, mistral
from draftproof.cli import main as cli
from draftproof.drafters.registry import METHODS
from draftproof.models import machine, steps
from tiny import llama, word_tokenizer


@pytest.fixture(autouse=True)
def _quick(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "WIDTH", 16)
    monkeypatch.setattr(steps, "REPEATS", 1)
    monkeypatch.setattr(
        machine, "dtype_speed", lambda device, tell: original(device, seconds=0.0, tell=tell)
    )
    torch.set_num_threads(1)


original = machine.dtype_speed


def folder(tmp_path, name, module, tokenizer=None):
    module.save_pretrained(tmp_path / name)
    (tokenizer or word_tokenizer()).save_pretrained(tmp_path / name)
    return str(tmp_path / name)


def document(capsys, *arguments):
    assert cli.run(["doctor", *arguments, "--device", "cpu", "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_machine_alone(capsys):
    found = document(capsys)
    assert found["machine"]["packages"]["torch"] == torch.__version__
    assert found["machine"]["devices"][0]["name"] == "cpu"
    assert [row["dtype"] for row in found["dtype_speed"]] == ["float32", "bfloat16", "float16"]
    assert all(row["seconds_1"] > 0 for row in found["dtype_speed"] if row["error"] is None)
    assert "target" not in found and "methods" not in found


def test_a_pair_that_fits(tmp_path, capsys):
    target, draft = folder(tmp_path, "t", mistral()), folder(tmp_path, "d", llama())
    found = document(capsys, target, "--draft", draft)
    assert found["target"]["layers"] == ["sliding window of 8"] * 2
    assert (
        found["target"]["trees"]
        and found["target"]["shares_passes"]
        and found["target"]["can_be_target"]
    )
    assert set(found["target"]["pass_seconds"]) == {"1", "5"}
    assert found["vocabularies"] == {"match": True, "why_not": None}
    rows = {row["method"]: row for row in found["methods"]}
    assert set(rows) == set(METHODS)
    for name in ("none", "ngram", "draft_model"):
        assert rows[name]["possible"] and rows[name]["why"] is None
    assert rows["draft_model"]["trees"]


def test_a_pair_that_does_not_fit_says_why(tmp_path, capsys):
    target = folder(tmp_path, "t", llama())
    draft = folder(tmp_path, "d", llama(), word_tokenizer(swapped=(3, 4)))
    found = document(capsys, target, "--draft", draft)
    assert not found["vocabularies"]["match"] and "id 3 is" in found["vocabularies"]["why_not"]
    row = next(row for row in found["methods"] if row["method"] == "draft_model")
    assert row["possible"] is False and "id 3 is" in row["why"]


def test_a_draft_that_cannot_be_loaded_leaves_the_targets_part(tmp_path, capsys):
    found = document(capsys, folder(tmp_path, "t", llama()), "--draft", str(tmp_path / "absent"))
    assert "there is no file or folder" in found["draft"]["error"]
    row = next(row for row in found["methods"] if row["method"] == "draft_model")
    assert row["possible"] is False and "there is no file or folder" in row["why"]
    assert found["target"]["can_be_target"]


def test_the_folder_of_a_drafter_is_tried_with_every_method_that_takes_one(tmp_path, capsys):
    heads = tmp_path / "heads"
    heads.mkdir()
    (heads / "config.json").write_text(
        json.dumps({"model_type": "medusa", "architectures": ["MedusaModel"]})
    )
    found = document(capsys, folder(tmp_path, "t", llama()), "--draft", str(heads))
    assert "holds Medusa heads" in found["draft"]["error"]
    takers = [row for row in found["methods"] if METHODS[row["method"]].model == "folder"]
    assert takers
    for row in takers:
        assert row["possible"] is False and str(heads) in row["why"] or "heads" in row["why"]


def test_without_a_draft_the_method_says_what_it_needs(tmp_path, capsys):
    found = document(capsys, folder(tmp_path, "t", llama()))
    row = next(row for row in found["methods"] if row["method"] == "draft_model")
    assert row["possible"] is False and row["why"] == "needs a draft model: name one with --draft"


def test_recurrent_layers_read_chains_only(tmp_path, capsys):
    target = folder(tmp_path, "t", mamba(torch.float32))
    found = document(capsys, target)
    assert found["target"]["caches"] == {"recurrent state": 2}
    assert not found["target"]["trees"] and found["target"]["goes_on"] == "token by token"
    row = next(row for row in found["methods"] if row["method"] == "ngram")
    assert row["possible"] and not row["trees"] and row["why"].startswith("chains only: ")


def test_the_page_for_people(tmp_path, capsys):
    target, draft = folder(tmp_path, "t", mistral()), folder(tmp_path, "d", mamba(torch.float32))
    assert cli.run(["doctor", target, "--draft", draft, "--device", "cpu"]) == 0
    page = capsys.readouterr().out
    for said in (
        "2 x sliding window of 8",
        "2 x recurrent state",
        "chains only",
        "every id stands for the same token",
        "ngram",
    ):
        assert said in page
    assert all(len(line) <= 80 for line in page.splitlines() if "/" not in line)


def test_wrong_usage_is_one_sentence(capsys):
    assert cli.run(["doctor", "--draft", "x"]) == 2
    assert "--draft needs a target beside it" in capsys.readouterr().err
    assert cli.run(["doctor", "--dtype", "int3"]) == 2
    assert "--dtype is what a target is loaded in" in capsys.readouterr().err
