"""A few settings of the random search in every run, dozens among the long checks; `search.py` runs any stretch of them."""

from __future__ import annotations

import pytest

from draftproof.decode.stopping import Stopper
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
    assert not {seed: said for seed, said in wrong.items() if not said.startswith(("ok", "too many", "refused"))}


def test_a_fault_is_seen(monkeypatch):
    """An end inside a draft that is passed over."""
    monkeypatch.setattr(Stopper, "ends", lambda self, token, ahead: False)
    with_ends = [one for one in map(setting, range(60)) if one.ends and not one.asked.get("ignore_eos")]
    assert any(verdict(one).startswith("TV") for one in with_ends[:4])
