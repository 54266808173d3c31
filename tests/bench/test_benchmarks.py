"""The published scripts run: the lab's scale-up on tiny models, and the table of predicted against measured."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from draftproof.models.hf import HFModel
from tiny import llama, word_tokenizer

FOLDER = Path(__file__).parents[2] / "benchmarks"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_labs_scale_up_on_tiny_models(tmp_path: Path) -> None:
    out = tmp_path / "lab.json"
    assert script("lab_scale_up").main(["--tiny", "--prompts", "2", "--tokens", "16", "--out", str(out)]) == 0
    results = json.loads(out.read_text())
    assert [r["temperature"] for r in results] == [0.0, 0.7]
    for result in results:
        assert result["alpha"]["mean"] == 0.8 and result["alpha"]["synthetic"] and result["cost_ratio"] > 0
        assert [row["k"] for row in result["rows"]] == [2, 4, 6]
        assert all(row["speedup"] > 0 and row["tokens_per_pass"] >= 1 and row["speedup_iid"] > 0 for row in result["rows"])


def test_the_first_layers_are_a_draft_of_the_same_weights() -> None:
    module = llama(num_hidden_layers=3)
    small = script("predicted_vs_measured").first_layers(module, 1)
    assert small.config.num_hidden_layers == 1 and module.config.num_hidden_layers == 3
    assert small.model.embed_tokens.weight.data_ptr() == module.model.embed_tokens.weight.data_ptr()
    draft = HFModel(small, word_tokenizer())
    assert draft.num_layers == 1


def cell(**changes: Any) -> dict[str, Any]:
    given = dict(
        pair="smollm2+ngram", workload="chat", temperature=0.0, k=1, predicted=1.1, low=1.0, high=1.2, iid=1.3, measured=1.15
    )
    given |= dict(predicted_tokens_per_round=1.5, measured_tokens_per_round=1.4, recommended=True, settings={})
    return given | {"provenance": {"processor": "p", "threads": 2, "dtype": "bfloat16", "torch": "2"}} | changes


def test_the_table_counts_what_it_is_judged_by(tmp_path: Path) -> None:
    module = script("predicted_vs_measured")
    text = module.markdown([cell(), cell(k=2, measured=0.9), cell(k=4, high=1.9, measured=1.5, recommended=False)])
    assert "3 of 48 cells" in text and "in 2 of 3 cells" in text and "within 10% in 1 of 3" in text
    assert "at most 15% of the point in 2 of 3" in text and "slower than plain decoding: 1" in text
    file = tmp_path / "cells.jsonl"
    file.write_text(json.dumps(cell()) + '\n{"pair": "unfin')
    assert len(module.read(file)) == 1 and module.markdown([]) == "No cell is measured yet.\n"


@pytest.mark.parametrize("name", ["lab_scale_up", "predicted_vs_measured"])
def test_scripts_say_how_they_are_run(name: str) -> None:
    assert f"python benchmarks/{name}.py" in str(script(name).__doc__)
