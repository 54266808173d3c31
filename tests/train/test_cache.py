"""Hidden states on disk: the same training as without, sizes said first, nothing over the limit,
nothing of another target."""

from __future__ import annotations

import pytest
import torch

from draftproof.errors import UsageError
from draftproof.heads.target import target_view
from draftproof.models.hf import HFModel
from draftproof.train.cache import StateCache
from draftproof.train.loop import Settings
from draftproof.train.run import Cache, Recipe, train_head
from draftproof.train.states import show_states
from draftproof.train.store import Text
from tiny import llama
from toy_language import SIZE, speaker, texts


def tiny_texts():
    return [
        Text("0" * 16, "a", tuple(range(9)), 4, 0.7),
        Text("1" * 16, "b", tuple(range(20, 34)), 6, 0.0),
    ]


def cache_of(folder, **changes):
    target = HFModel(llama(num_hidden_layers=4, **changes), name="tiny", check=False)
    return StateCache(folder, target, target_view(target), (1, 3), torch.tensor([3, 8, 21, 25]))


@pytest.mark.parametrize("temperature", [1.0, None])
def test_kept_states_are_fresh_ones_but_for_rounding(tmp_path, temperature):
    cache = cache_of(tmp_path)
    cache.fill(tiny_texts(), 10**6)
    kept = cache(tiny_texts(), temperature)
    fresh = show_states(
        cache.target, tiny_texts(), (1, 3), cache.draft_ids, temperature=temperature
    )
    assert kept.temperatures == fresh.temperatures
    for layer in (1, 3):
        for one, other in zip(kept.hidden[layer], fresh.hidden[layer], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    for one, other in zip(kept.log_laws, fresh.log_laws, strict=True):
        torch.testing.assert_close(one.exp(), other.exp(), rtol=2e-2, atol=2e-3)
    for one, other in zip(kept.best, fresh.best, strict=True):
        assert torch.equal(one, other)


def test_the_size_is_what_is_written_and_the_limit_holds(tmp_path):
    cache = cache_of(tmp_path)
    needed = cache.size(tiny_texts())
    with pytest.raises(UsageError, match=r"take 0\.00 GB in .*; the limit is 0\.00 GB"):
        cache.fill(tiny_texts(), needed - 1)
    assert [file.name for file in tmp_path.iterdir()] == ["cache.json"]
    cache.fill(tiny_texts(), needed)
    written = sum(file.stat().st_size for file in tmp_path.glob("*.npy"))
    assert abs(written - needed) <= 2 * 2 * 128, "but for the headers"
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    cache.fill(tiny_texts(), 10**6)
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before


def test_states_of_another_target_or_other_layers_are_refused(tmp_path):
    cache_of(tmp_path).fill(tiny_texts(), 10**6)
    with pytest.raises(UsageError, match="another fingerprint"):
        cache_of(tmp_path, intermediate_size=48).fill(tiny_texts(), 10**6)
    other = cache_of(tmp_path)
    other.layers, other.kept = (1, 2), (1, 2, 4)
    with pytest.raises(UsageError, match="another layers"):
        other.fill(tiny_texts(), 10**6)


def test_a_damaged_file_is_named(tmp_path):
    cache = cache_of(tmp_path)
    cache.fill(tiny_texts(), 10**6)
    file = next(tmp_path.glob("0*.npy"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UsageError, match=file.name):
        cache(tiny_texts(), 1.0)


def test_training_with_and_without_a_cache_is_the_same(tmp_path):
    losses, said = {}, []
    for name in ("fresh", "kept"):
        target = speaker()
        target.tokenizer = None
        cache = Cache(tmp_path / "states", 10**8, said.append) if name == "kept" else None
        settings = Settings(steps=6, batch_size=4, unroll=2, evaluate_every=3, patience=0)
        train_head(
            target,
            texts(),
            Recipe("eagle3", draft_vocab_size=SIZE),
            settings,
            tmp_path / name,
            cache=cache,
        )
        losses[name] = torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["losses"]
    assert losses["kept"] == pytest.approx(losses["fresh"], rel=2e-2)
    assert "take 0.00 GB" in said[0] and "the limit is 0.10 GB" in said[0]


def test_what_the_folder_holds_counts_against_the_limit(tmp_path):
    cache, (one, other) = cache_of(tmp_path), tiny_texts()
    cache.fill([one], 10**6)
    held = sum(file.stat().st_size for file in tmp_path.glob("*.npy"))
    with pytest.raises(UsageError, match="the limit is"):
        cache.fill([one, other], held + cache.size([other]) - 1)
    cache.fill([one, other], held + cache.size([other]))
