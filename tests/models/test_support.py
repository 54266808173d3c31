"""Models that cannot be decoded exactly are refused when loaded, with the layer or class in the way."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    Gemma3TextConfig,
    GPTNeoConfig,
    JambaConfig,
    LlamaModel,
    LlavaConfig,
    MambaConfig,
    MambaForCausalLM,
    Qwen3NextConfig,
    T5Config,
    T5ForConditionalGeneration,
)

from draftproof.errors import UnsupportedModelError, UsageError
from draftproof.models import selfcheck
from draftproof.models.hf import HFModel
from draftproof.models.protocol import Step, extend
from draftproof.models.support import check_config
from tiny import SHAPE, fresh_logits, gpt2, llama, mistral, qwen2


def test_a_sliding_window_is_refused_and_a_limit_within_it_accepted():
    with pytest.raises(
        UnsupportedModelError, match=r"layer 0 of MistralConfig is sliding_attention over 8 tokens.*max_length=8"
    ):
        HFModel(mistral())
    module = mistral(torch.float64)
    model = HFModel(module, max_length=8)
    session = model.open()
    logits = extend(Step(session, [3, 1, 4, 1, 5, 9, 2, 6])).logits
    torch.testing.assert_close(logits, fresh_logits(module, [3, 1, 4, 1, 5, 9, 2, 6]), rtol=0, atol=1e-9)
    with pytest.raises(UsageError, match="holds 8 tokens"):
        extend(Step(session, [1]))


@pytest.mark.parametrize(
    "module",
    [
        lambda: mistral(sliding_window=128),
        lambda: mistral(sliding_window=None),
        lambda: qwen2(use_sliding_window=False, sliding_window=8),
    ],
    ids=["as wide as the context", "none", "switched off"],
)
def test_a_window_that_drops_nothing_is_full_attention(module):
    assert HFModel(module()).open().length == 0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (T5Config(num_layers=1), "T5Config is an encoder-decoder model"),
        (MambaConfig(num_hidden_layers=2), "layer 0 of MambaConfig is (linear_attention|mamba).*cannot be rolled back"),
        (JambaConfig(num_hidden_layers=8), "layer 0 of JambaConfig is (linear_attention|mamba)"),
        (Qwen3NextConfig(num_hidden_layers=4), "layer 0 of Qwen3NextConfig is linear_attention"),
        (Gemma3TextConfig(num_hidden_layers=6), "layer 0 of Gemma3TextConfig is sliding_attention over 4096"),
        (GPTNeoConfig(num_layers=2, attention_types=[[["global", "local"], 1]]), "layer 1 of GPTNeoConfig is local attention"),
        (LlavaConfig(), "LlavaConfig takes more than text"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_configs_are_refused_by_name(config, message):
    with pytest.raises(UnsupportedModelError, match=message):
        check_config(config)


def test_live_modules_are_refused_by_name():
    small = dict(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=32)
    with pytest.raises(UnsupportedModelError, match="encoder-decoder"):
        HFModel(T5ForConditionalGeneration(T5Config(**small)))
    with pytest.raises(UnsupportedModelError, match="layer 0 of MambaConfig"):
        HFModel(MambaForCausalLM(MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, state_size=4)))
    with pytest.raises(UnsupportedModelError, match="LlamaModel has no output layer"):
        HFModel(LlamaModel(llama().config))


def test_flash_attention_is_refused_with_the_way_out():
    module = llama()
    module.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(UnsupportedModelError, match="attn_implementation='sdpa'"):
        HFModel(module)


def test_a_forward_that_ignores_the_mask_is_found_when_wrapped():
    module = llama()
    forward = module.forward

    def blind(*args, attention_mask=None, **kwargs):
        return forward(*args, attention_mask=None, **kwargs)

    blind.__signature__ = __import__("inspect").signature(forward)
    module.set_attn_implementation("eager")  # `sdpa` reads the mask of the pass itself
    module.forward = blind
    with pytest.raises(UnsupportedModelError, match="other logits through our cache"):
        HFModel(module)


def test_a_forward_that_ignores_positions_is_found_when_wrapped():
    module = gpt2()
    forward = module.forward

    def lost(*args, position_ids=None, **kwargs):
        return forward(*args, position_ids=None if position_ids is None else torch.zeros_like(position_ids), **kwargs)

    lost.__signature__ = __import__("inspect").signature(forward)
    module.forward = lost
    with pytest.raises(UnsupportedModelError, match="other logits through our cache"):
        HFModel(module)


def test_a_forward_that_fails_is_reported_in_one_sentence():
    module = llama()
    module.model.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(UnsupportedModelError, match="does not run with a cache of ours: ZeroDivisionError"):
        HFModel(module)
    HFModel(module, check=False)


def test_the_check_can_be_left_out_and_is_skipped_where_it_does_not_fit(monkeypatch):
    seen = []
    monkeypatch.setattr(selfcheck, "_through_the_cache", lambda *_: seen.append(1))
    HFModel(llama(max_position_embeddings=5))
    HFModel(llama(), check=False)
    assert seen == []


def test_shape_is_what_the_tests_think():
    assert SHAPE["num_key_value_heads"] < SHAPE["num_attention_heads"], "grouped heads must be among the families"
