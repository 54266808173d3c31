"""A head that comes with the package is used for its own target when no model is named, and for no
other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.decode.available_methods import methods_possible
from draftproof.errors import UsageError
from draftproof.heads import shipped
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.folder import save_head
from draftproof.heads.layouts import read_layout
from draftproof.heads.target import target_view
from draftproof.models.hf import HFModel
from tiny import llama


def tiny(seed):
    return HFModel(llama(num_hidden_layers=4, seed=seed), name="tiny", check=False)


def test_the_head_of_this_target_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    target, other = tiny(0), tiny(1)
    view = target_view(target)
    save_head(tmp_path / "one", Eagle3.of(view, range(40)), view)
    assert shipped.shipped_head(view, "eagle3") == tmp_path / "one"
    assert shipped.shipped_head(view, "eagle") is None
    assert shipped.shipped_head(target_view(other), "eagle3") is None
    decoder = SpeculativeDecoder(
        None, target, speculative_config={"method": "eagle3", "num_speculative_tokens": 2}
    )
    result = decoder.generate([1, 2, 3], SamplingParams(max_tokens=8, temperature=0))
    assert any(record.draft_tokens for record in result.rounds)
    assert (
        result.token_ids
        == decoder.plain.generate([1, 2, 3], SamplingParams(max_tokens=8, temperature=0)).token_ids
    )
    with pytest.raises(
        UsageError, match="no head for method .eagle3. comes with the package for tiny"
    ):
        SpeculativeDecoder(None, other, speculative_config={"method": "eagle3"})
    for model, possible, why in (
        (target, True, "comes with the package"),
        (other, None, "needs the folder"),
    ):
        row = next(row for row in methods_possible(model) if row["method"] == "eagle3")
        assert row["possible"] is possible and why in row["why"]


def test_the_command_line_drafts_with_it_where_there_is_one(tmp_path, monkeypatch):
    from draftproof.cli.options import usual_method

    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    assert usual_method(None) == {"method": "ngram"}
    (tmp_path / "smollm2-135m-instruct").mkdir()
    (tmp_path / "smollm2-135m-instruct" / "config.json").write_text("{}")
    assert usual_method(None) == {"method": "auto", "drafters": ["suffix", "eagle3"]}
    assert usual_method("some-other-model") == {"method": "ngram"}


def test_the_file_that_is_shipped_is_whole_small_and_described():
    """Read without its target, and without a network: which target it is for, what it drafts among,
    how large it is."""
    (folder,) = [path for path in shipped.FOLDER.iterdir() if path.is_dir()]
    size = sum(file.stat().st_size for file in folder.iterdir())
    stored = read_layout(folder)
    assert size < 20_000_000 and stored.method == "eagle3"
    assert (
        stored.tensors["fc.weight"].dtype == torch.bfloat16 and stored.about_target["fingerprint"]
    )
    assert len(stored.tensors["d2t"]) == len(stored.tensors["lm_head.weight"]) == 8192
    page = (Path(__file__).parents[2] / "docs" / "default_head.md").read_text(encoding="utf-8")
    assert f"{size / 1e6:.1f} MB in bfloat16" in page and "8,192" in page


def test_the_default_model_is_known_by_its_name_on_the_hub():
    has_head = shipped.has_head
    assert has_head("smollm2-135m-instruct") and has_head("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert not has_head("somebody/SmolLM2-135M-Instruct")
