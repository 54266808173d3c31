"""Decoders made from what the caller has: what contradicts is refused when they are made, and
nothing given is left aside."""

from __future__ import annotations

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.decode.config import SpeculativeConfig
from draftproof.drafters.ngram import NGram
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from tiny import llama

LAWS = [[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]]


@pytest.fixture
def loaded(monkeypatch):
    """The names that were loaded; whatever is named is a tiny model."""
    names: list[str] = []

    def load_model(name, **options):
        names.append(name)
        return HFModel(llama(torch.float64), name=name)

    monkeypatch.setattr("draftproof.models.load.load_model", load_model)
    monkeypatch.setattr("draftproof.models.place.check_place", lambda *_: None)
    return names


@pytest.mark.parametrize(
    "config, length",
    [(None, 4), ({"num_speculative_tokens": 0}, 0), ({"num_speculative_tokens": 2}, 2)],
)
def test_a_drafter_of_ones_own_beside_a_named_target(loaded, config, length):
    made = SpeculativeDecoder.from_pretrained("target", drafter=NGram(), speculative_config=config)
    assert loaded == ["target"]
    assert made.config.num_speculative_tokens == length
    result = made.generate([1, 2, 1, 2, 1, 2], SamplingParams(temperature=0, max_tokens=4))
    assert result.stats.method == ("ngram" if length else "none")


@pytest.mark.parametrize(
    "config", [{"method": "ngram"}, {"method": "draft_model", "model": "draft"}]
)
def test_a_method_beside_a_drafter_is_refused_before_anything_is_loaded(loaded, config):
    with pytest.raises(UsageError, match=r"contradicts the drafter given \('ngram'\)"):
        SpeculativeDecoder.from_pretrained("target", drafter=NGram(), speculative_config=config)
    assert loaded == []


@pytest.mark.parametrize("config", [SpeculativeConfig(method="ngram"), SpeculativeConfig()])
def test_a_draft_model_that_the_method_does_not_take_is_refused(config):
    with pytest.raises(
        UsageError, match=f"a draft model was given, but method '{config.method}' takes none"
    ):
        SpeculativeDecoder(TableModel(LAWS), TableModel(LAWS), speculative_config=config)


def test_costs_without_a_table_for_one_of_the_drafters_are_refused():
    costs = {"suffix": {"verify": {"1": 1.0}}}
    with pytest.raises(UsageError, match="costs has tables for suffix and none for 'ngram'"):
        SpeculativeDecoder(
            None, TableModel(LAWS), speculative_config={"method": "auto", "costs": costs}
        )
