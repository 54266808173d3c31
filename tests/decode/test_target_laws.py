"""A row that has no law matters on the accepted path, its last row included, and nowhere else: in memory and on a device."""

from __future__ import annotations

import pytest
import torch

from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import ROOT, Draft
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
def test_what_a_processor_raises_is_raised_where_the_text_goes_that_way(bad):
    """Row `bad` has no law, that after the draft of token bad - 1."""
    laws = RowLaws(pipeline(logits_processors=[nothing_after(bad - 1)]), torch.zeros(3, 3).double(), CONTEXT, CHAIN)
    laws.rows((ROOT, 0, 1))
    for path in [(), (0,), (0, 1)]:
        if len(path) < bad:
            laws.check(path)
        else:
            with pytest.raises(NoContinuation):
                laws.check(path)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_row_of_nan_on_a_device_is_raised_where_the_text_goes_that_way(bad):
    logits = torch.zeros(3, 3).double()
    logits[bad] = torch.nan
    with pretended():
        laws = RowLaws(pipeline(), logits.to(FIRST), CONTEXT, CHAIN)
        laws.rows((ROOT, 0, 1))
        for path in [(), (0,), (0, 1)]:
            if len(path) < bad:
                laws.check(path)
            else:
                with pytest.raises(InvalidLogitsError):
                    laws.check(path)
