"""A row that has no law cuts the accepted path before it, its last row included, and matters
nowhere else: in memory and on a device. The next round then begins there, and fails as plain
decoding does."""

from __future__ import annotations

import pytest
import torch

from draftproof.core.chance import KeyedChance
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Draft, Verdict
from draftproof.decode.target_laws import RowLaws
from draftproof.errors import InvalidLogitsError
from pretended_devices import FIRST, pretended

CHAIN = Draft((0, 1), (ROOT, 0))
CONTEXT = [2, 2]


class NoContinuation(Exception):
    """What the caller's processor raises."""


def pipeline(**given):
    return LawPipeline(SamplingParams(**given), num_prompt_tokens=2, vocab_size=3)


def nothing_after(token):
    def processor(input_ids, scores):
        if bool((input_ids[:, -1] == token).any()):
            raise NoContinuation
        return scores

    return processor


@pytest.mark.parametrize("bad", [1, 2])
def test_what_a_processor_raises_cuts_the_way_before_it(bad):
    """Row `bad` has no law, that after the draft of token bad - 1."""
    laws = RowLaws(
        pipeline(logits_processors=[nothing_after(bad - 1)]),
        torch.zeros(3, 3).double(),
        CONTEXT,
        CHAIN,
    )
    laws.rows((ROOT, 0, 1))
    assert_cut(laws, bad)


def assert_cut(laws, bad):
    """A way that comes to row `bad` is kept up to the token before it, and any other whole."""
    for path in [(), (0,), (0, 1)]:
        kept = laws.within_law(Verdict(path, 2))
        assert kept == (
            Verdict(path, 2)
            if len(path) < bad
            else Verdict((0, 1)[: bad - 1], CHAIN.tokens[bad - 1])
        )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_is_asked_behind_an_end(temperature):
    """A draft that ends the text has no row behind it: neither its law nor a draw from it is
    made."""
    ended = Draft((0, 1), (ROOT, 0), ends=frozenset({1}))
    asked = pipeline(logits_processors=[nothing_after(1)], temperature=temperature)
    laws = RowLaws(asked, torch.zeros(3, 3).double(), CONTEXT, ended)
    assert int(laws.draw(1, KeyedChance((1, 2), 2))) == 1
    assert laws.row(1).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_row_of_nan_on_a_device_cuts_the_way_before_it(bad):
    logits = torch.zeros(3, 3).double()
    logits[bad] = torch.nan
    with pretended():
        laws = RowLaws(pipeline(), logits.to(FIRST), CONTEXT, CHAIN)
        laws.rows((ROOT, 0, 1))
        if bad > 0:
            assert_cut(laws, bad)
            return
        with pytest.raises(InvalidLogitsError):  # every text goes there
            laws.within_law(Verdict((), 2))
