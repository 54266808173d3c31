"""A few settings of the random search in every run, dozens among the long checks; `search.py` runs
any stretch of them."""

from __future__ import annotations

import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.decode.stopping import Stopper
from draftproof.errors import InvalidLogitsError
from search.search import verdict
from search.settings import setting

PARTED = (201403, 201589, 201726, 201862, 201878)
"""Texts that come to a place without a law; a key of chance was asked for twice there."""


@pytest.mark.parametrize("seed", [*range(12), *PARTED])
def test_the_text_has_the_targets_law(seed):
    assert verdict(setting(seed), most=2_000).startswith(("ok", "too many", "refused"))


@pytest.mark.proof
@pytest.mark.parametrize("first", range(100_000, 100_120, 10))
def test_many_settings(first):
    wrong = {seed: verdict(setting(seed)) for seed in range(first, first + 10)}
    assert not {
        seed: said
        for seed, said in wrong.items()
        if not said.startswith(("ok", "too many", "refused"))
    }


def test_a_fault_is_seen(monkeypatch):
    """An end inside a draft that is passed over."""
    monkeypatch.setattr(Stopper, "ends", lambda self, token, ahead: False)
    with_ends = [
        one for one in map(setting, range(60)) if one.ends and not one.asked.get("ignore_eos")
    ]
    assert any(verdict(one).startswith("TV") for one in with_ends[:4])


def test_a_prompt_after_which_nothing_is_allowed_fails_with_drafts_as_it_fails_plainly():
    """What an earlier search took for a wrong law of the batch: after the second prompt the target
    says 2 for sure, and `min_tokens` forbids it. Plain decoding has no law there either, so the row
    fails alone, and its neighbour does not."""
    laws = {(0, 1): [0.0, 0.0, 1.0]}
    target = TableModel(lambda prefix: laws.get(tuple(prefix[-2:]), [0.5, 0.3, 0.2]), vocab_size=3)
    made = SpeculativeDecoder(
        target, target, speculative_config={"num_speculative_tokens": 3, "rule": "traversal"}
    )
    params = SamplingParams(
        logit_bias={2: -100}, min_tokens=1, stop_token_ids=[2], max_tokens=4, seed=0
    )
    for decoder in (made, made.plain):
        fine, failed = decoder.generate([[1, 1], [0, 0, 1]], params)
        assert failed.finish_reason == "error" and "no token" in failed.error
        assert fine.finish_reason != "error"
        with pytest.raises(InvalidLogitsError):
            decoder.generate([0, 0, 1], params)
