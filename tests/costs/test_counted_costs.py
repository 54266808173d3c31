"""Costs counted from what models are: the same for equal models whatever the clock, and in
proportion to what a pass reads."""

from __future__ import annotations

import pytest
import torch

from draftproof import SpeculativeDecoder, TableModel
from draftproof.costs.counted_costs import HALF, SINGLE, counted_costs
from draftproof.costs.round_costs import RoundCosts
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.suffix import Suffix
from draftproof.models.hf import HFModel
from random_heads import random_head
from tiny import llama

LAWS = [[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]]


def costs(draft, target, **config):
    made = SpeculativeDecoder(
        draft, target, speculative_config={"num_speculative_tokens": 3} | config
    )
    return next(iter(counted_costs(made.target, made.drafter).values()))


def test_a_draft_of_fewer_layers_costs_less_and_looking_up_costs_nothing():
    target = HFModel(llama(torch.float32, num_hidden_layers=4), check=False)
    steps = [
        costs(HFModel(llama(torch.float32, num_hidden_layers=n), check=False), target).draft
        for n in (1, 2, 4)
    ]
    assert (
        steps == sorted(steps)
        and steps[-1] == pytest.approx(1.0)
        and steps[0] == pytest.approx(2 / 5, rel=0.1)
    )
    assert costs(Suffix(), target).draft == costs(Suffix(), target).read == 0.0


def test_the_width_of_the_weights_decides_about_verification():
    assert [
        costs(Suffix(), HFModel(llama(kind), check=False)).verify
        for kind in (torch.float32, torch.bfloat16)
    ] == [
        SINGLE,
        HALF,
    ]


def test_a_model_that_shows_no_weights_counts_as_long_as_the_target():
    assert costs(TableModel(LAWS), TableModel(LAWS)).draft == 1.0
    assert costs(Eagle(random_head("eagle")), TableModel(LAWS, hidden=lambda *_: None)).draft == 1.0


def test_the_table_is_part_of_the_configuration_and_one_that_is_given_stays():
    made = SpeculativeDecoder(
        TableModel(LAWS), TableModel(LAWS), speculative_config={"adaptive": "survival"}
    )
    assert made.config.costs == {
        "draft_model": counted_costs(made.target, made.drafter)["draft_model"].as_dict()
    }
    given = RoundCosts(draft=0.3).as_dict()
    config = {"adaptive": "survival", "costs": given}
    assert (
        SpeculativeDecoder(
            TableModel(LAWS), TableModel(LAWS), speculative_config=config
        ).config.costs
        == given
    )
