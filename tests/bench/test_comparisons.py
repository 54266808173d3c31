"""The published comparisons run: with vLLM, of heads, of texts with the law they are drawn from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from benchmark_scripts import script
from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.heads.target import target_view
from draftproof.models.hf import HFModel
from draftproof.train.heldout import held_out
from draftproof.train.run import Recipe, fresh_head
from draftproof.train.states import show_states
from draftproof.train.store import Text
from tiny import VOCAB, llama


def test_the_comparison_with_vllm_counts_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Our half of it on a tiny model; vLLM's line is written by hand, with the texts that plain
    decoding gives."""
    compare = script("compare_with_vllm")
    target = HFModel(llama(), name="tiny", check=False)
    target.module.save_pretrained(tmp_path / "target")
    prompts = [[5, 9, 33, 2, 17], [1, 2, 3, 1, 2, 3, 1, 2]]
    plain = SpeculativeDecoder(None, target).plain
    params = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
    texts = [list(plain.generate(prompt, params).token_ids) for prompt in prompts]
    config = {"method": "suffix", "num_speculative_tokens": 4}
    job = {"arm": "suffix", "config": config, "dtype": "float32", "tokens": 20, "repeat": 1}
    job |= {"prompts": prompts, "settings": ["greedy"], "target": str(tmp_path / "target")}
    raw = tmp_path / "raw.jsonl"
    compare._append(
        raw,
        job,
        "greedy",
        "vLLM 0.0",
        {"texts": texts, "drafts": 10, "draft_tokens": 20, "accepted": [5, 2, 1, 0]},
    )
    compare.in_ours(raw, job, {"greedy": texts})
    ours = json.loads(raw.read_text().splitlines()[1])
    assert (
        ours["texts"] == texts
        and ours["drafts"] == sum(one["drafts"] for one in ours["per_text"]) > 0
    )
    for text, one in zip(texts, ours["per_text"], strict=True):
        assert one["accepted"][0] <= one["drafts"] <= one["draft_tokens"] <= 4 * one[
            "drafts"
        ] and one["drafts"] <= len(text)
    assert compare._lacking(raw, "suffix", ["greedy", "T=0.7"], "vLLM") == ["T=0.7"]
    compare.report(argparse.Namespace(raw=raw, positions=4))
    table = capsys.readouterr().out
    assert (
        "| suffix | greedy | vLLM | 10 | 2.0 | 50.0 | 20.0 | 10.0 | 0.0 | 1.80 |" in table
        and "2 of 2 texts equal" in table
    )
    compare.in_ours(raw, job | {"replay": True}, {"greedy": texts})
    again = json.loads(raw.read_text().splitlines()[2])
    assert (
        again["texts"] == texts
        and again["drafts"] == ours["drafts"]
        and again["draft_tokens"] == ours["draft_tokens"]
    )
    assert all(
        abs(one - other) <= len(texts)
        for one, other in zip(again["accepted"], ours["accepted"], strict=True)
    )
    compare.report(argparse.Namespace(raw=raw, positions=4))
    assert "| apart, points | vLLM's texts |" in capsys.readouterr().out


def test_one_engine_serves_all_proposers_of_ours_of_one_length() -> None:
    compare = script("compare_with_vllm")
    arms = [
        {"arm": name, "config": {"method": method, "num_speculative_tokens": length}}
        for name, method, length in (
            ("a", "suffix", 6),
            ("b", "eagle3", 6),
            ("c", "auto", 6),
            ("d", "ngram", 3),
            ("e", "eagle3", 6),
        )
    ]
    assert [[one["arm"] for one in group] for group in compare._groups(arms)] == [
        ["a", "c"],
        ["b"],
        ["d"],
        ["e"],
    ]
    asked, additional = compare.vllm_configs(arms[0]["config"])
    assert asked == {
        "method": "custom_class",
        "model": "draftproof.vllm.Suffix",
        "num_speculative_tokens": 6,
    }
    assert additional == {"draftproof": arms[0]["config"]}
    assert compare.vllm_configs(arms[1]["config"]) == (arms[1]["config"], {})


@pytest.mark.parametrize(
    ("drawn_at", "low", "high"), [(0.7, -3.0, 3.0), (1.1, -99.0, -6.0), (0.4, 6.0, 99.0)]
)
def test_texts_are_held_against_the_law_they_should_be_drawn_from(
    drawn_at: float, low: float, high: float
) -> None:
    """An exact engine is outside by chance in 0.27% of runs; one as much too hot or cold as here is
    hardly ever inside."""
    table = np.random.default_rng(0).dirichlet(np.full(16, 0.5), size=16)
    target, prompts = TableModel(table), [(1, 2), (3,)]
    decoder = SpeculativeDecoder(None, target).plain
    texts = [
        decoder.generate(
            prompts[i % 2], SamplingParams(temperature=drawn_at, max_tokens=40, seed=i)
        ).token_ids
        for i in range(40)
    ]
    found = script("texts_against_law").score(target, prompts, texts, 0.7)
    assert low < found["z"] < high and found["tokens"] == 1600


def test_heads_are_compared_on_the_same_texts() -> None:
    module = script("compare_heads")
    target = HFModel(llama(num_hidden_layers=4), name="tiny", check=False)
    texts = [
        Text(f"{i:016x}", "chat", tuple((i + j) % VOCAB for j in range(16)), 4, 0.7)
        for i in range(3)
    ]
    view = target_view(target)
    heads = [
        fresh_head(Recipe("eagle3", draft_vocab_size=VOCAB, begin="random"), view, texts, seed)
        for seed in (0, 0, 1)
    ]
    rows, chances = module.readings(target, heads, texts)
    whole = held_out(
        heads[2], [show_states(target, texts, heads[2].hidden_layers, None, temperature=None)], 3
    )
    assert (
        np.allclose(rows / rows.sum() @ chances[:, 2], whole.marginal, atol=1e-6)
        and rows.sum() == whole.rows[0]
    )
    lines = module.table(["a", "same", "other"], rows, chances)
    assert lines[2].endswith("+0.000 ± 0.000 |") and lines[3].endswith("+0.000 ± 0.000 |")
    assert not lines[4].endswith("+0.000 ± 0.000 |")
    assert module.table(
        ["a", "b"], np.array([1.0, 3.0]), np.array([[[0.5], [0.6]], [[0.5], [0.5]]])
    )[3].endswith("+0.025 ± 0.027 |")
