"""Which ids end a text: what configs say, read as transformers reads it."""

from __future__ import annotations

import pytest
import torch

import tiny
from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.generation_config import ids_of
from draftproof.core.params import SamplingParams as Params
from draftproof.errors import UsageError
from draftproof.hf import generate
from draftproof.models.hf import HFModel

LAST = 15
PROMPT = [1, 2, 3]


def always_the_last() -> torch.nn.Module:
    """Token 15 after everything, token 3 the second best."""
    table = torch.zeros(16, 16)
    table[:, LAST], table[:, 3] = 9.0, 5.0
    return tiny.table_model(table)


@pytest.mark.parametrize("given", [-1, 16, [-1], [-17, 99]], ids=str)
@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_an_id_that_means_none_ends_and_bans_nothing(given, drafter):
    module = always_the_last()
    module.generation_config.eos_token_id, module.generation_config.pad_token_id = given, 0
    expected = module.generate(
        torch.tensor([PROMPT]), do_sample=False, max_new_tokens=5, min_new_tokens=3
    )
    assert expected[0, 3:].tolist() == [LAST] * 5
    hooked = module.generate(
        torch.tensor([PROMPT]),
        do_sample=False,
        max_new_tokens=5,
        min_new_tokens=3,
        custom_generate=generate,
        drafter=drafter,
    )
    assert torch.equal(hooked, expected)
    made = SpeculativeDecoder(None, module, speculative_config={"method": drafter})
    params = SamplingParams(temperature=0, max_tokens=5, min_tokens=3)
    assert made.target.eos_token_ids == ()
    for decoder in (made, made.plain):
        assert decoder.generate(PROMPT, params).token_ids == (LAST,) * 5


def test_a_generation_config_without_an_end_has_none():
    """Its config has one, which transformers does not look at then."""
    module = always_the_last()
    module.config.eos_token_id, module.generation_config.eos_token_id = LAST, None
    module.generation_config.pad_token_id = 0
    assert module.generate(torch.tensor([PROMPT]), do_sample=False, max_new_tokens=4).shape[1] == 7
    target = HFModel(module)
    assert target.eos_token_ids == ()
    assert (
        SpeculativeDecoder(None, target)
        .generate(PROMPT, SamplingParams(temperature=0, max_tokens=4))
        .token_ids
        == (LAST,) * 4
    )
    module.generation_config.eos_token_id = [LAST, -1]
    assert HFModel(module).eos_token_ids == (LAST,)


def test_ids_of_configs():
    assert [ids_of(value, 16) for value in (None, -1, 15, 16, [3, -1, 40, 0])] == [
        (),
        (),
        (15,),
        (),
        (3, 0),
    ]
    config = tiny.llama().generation_config
    config.suppress_tokens, config.begin_suppress_tokens = [-1, 5, 70], [-1]
    config.forced_eos_token_id = -1
    params = Params.from_generation_config(config, num_prompt_tokens=3, vocab_size=64)
    assert params.suppress_tokens == (5,) and params.logits_processors == ()


def test_ids_of_the_callers_outside_the_vocabulary_are_refused():
    for wrong in (-1, 3):
        with pytest.raises(UsageError, match="allowed: ids from 0 to 2"):
            TableModel([[0.4, 0.3, 0.3]] * 3, eos_token_ids=[wrong])
    made = SpeculativeDecoder(None, TableModel([[0.4, 0.3, 0.3]] * 3))
    with pytest.raises(UsageError, match="stop_token_ids has token id 3"):
        made.generate([0], SamplingParams(max_tokens=2, stop_token_ids=[3]))
    with pytest.raises(UsageError, match="stop_token_ids"):
        SamplingParams(max_tokens=2, stop_token_ids=[-1])
