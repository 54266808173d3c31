"""Models that cannot be decoded exactly are refused when loaded, with the layer or class in the
way."""

from __future__ import annotations

import json
import re
import warnings

import pytest
import torch
import transformers
from transformers import (
    Gemma3TextConfig,
    GPTNeoConfig,
    JambaConfig,
    Llama4TextConfig,
    LlamaModel,
    LlavaConfig,
    MambaConfig,
    Qwen3NextConfig,
    RecurrentGemmaConfig,
    RecurrentGemmaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
from transformers.utils.quantization_config import QuantizationMethod

from draftproof.errors import UnsupportedModelError
from draftproof.heads.target import target_view
from draftproof.models import selfcheck
from draftproof.models.hf import HFModel
from draftproof.models.quantised import why_rows_mix
from draftproof.models.support import check_config, check_target
from tiny import SHAPE, gpt2, llama, mistral, qwen2


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
    assert {str(kind) for kind in HFModel(module()).layer_kinds} == {"full attention"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (T5Config(num_layers=1), "T5Config is an encoder-decoder model"),
        (
            GPTNeoConfig(num_layers=2, attention_types=[[["global", "local"], 1]]),
            "layer 1 of GPTNeoConfig is local attention",
        ),
        (LlavaConfig(), "LlavaConfig takes more than text"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_configs_are_refused_by_name(config, message):
    with pytest.raises(UnsupportedModelError, match=message):
        check_config(config)


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (MambaConfig(num_hidden_layers=2), ["recurrent state"] * 2),
        (JambaConfig(num_hidden_layers=5), ["recurrent state"] * 4 + ["full attention"]),
        (Qwen3NextConfig(num_hidden_layers=4), ["recurrent state"] * 3 + ["full attention"]),
        (
            Gemma3TextConfig(num_hidden_layers=6),
            ["sliding window of 4096"] * 5 + ["full attention"],
        ),
        (Llama4TextConfig(num_hidden_layers=4), ["chunks of 8192"] * 3 + ["full attention"]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_the_kind_of_every_layer_is_read_off_the_config(config, kinds):
    assert [str(kind) for kind in check_config(config)] == kinds


def test_live_modules_are_refused_by_name():
    small = dict(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=32)
    with pytest.raises(UnsupportedModelError, match="encoder-decoder"):
        HFModel(T5ForConditionalGeneration(T5Config(**small)))
    shape = dict(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        lru_width=16,
    )
    module = RecurrentGemmaForCausalLM(
        RecurrentGemmaConfig(**shape, num_key_value_heads=1, attention_window_size=8)
    )
    with pytest.raises(
        UnsupportedModelError,
        match="layer 0 of RecurrentGemmaForCausalLM .* keeps its state in itself",
    ):
        HFModel(module)
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
        return forward(
            *args,
            position_ids=None if position_ids is None else torch.zeros_like(position_ids),
            **kwargs,
        )

    lost.__signature__ = __import__("inspect").signature(forward)
    module.forward = lost
    with pytest.raises(UnsupportedModelError, match="other logits through our cache"):
        HFModel(module)


def test_a_state_kept_in_the_module_is_found_when_wrapped():
    """Sessions of such a model would disturb each other; the check reads two in turns."""
    module = llama()
    inner = module.model.layers[0]
    last = [torch.zeros(1, 1, 32)]

    def remember(_, given, output):
        changed = output + 0.5 * last[0]
        last[0] = given[0][:1, -1:].clone()
        return changed

    inner.register_forward_hook(remember)
    with pytest.raises(UnsupportedModelError, match="other logits through our cache"):
        HFModel(module)


def test_a_forward_that_fails_is_reported_in_one_sentence():
    module = llama()
    module.model.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(
        UnsupportedModelError, match="does not run with a cache of ours: ZeroDivisionError"
    ):
        HFModel(module)
    HFModel(module, check=False)


def test_the_check_can_be_left_out_and_is_skipped_where_it_does_not_fit(monkeypatch):
    seen = []
    monkeypatch.setattr(selfcheck, "_through_the_cache", lambda *_: seen.append(1))
    HFModel(llama(max_position_embeddings=5))
    HFModel(llama(), check=False)
    assert seen == []


def test_shape_is_what_the_tests_think():
    assert SHAPE["num_key_value_heads"] < SHAPE["num_attention_heads"], (
        "grouped heads must be among the families"
    )


def with_quantisation(settings):
    config = llama().config
    config.quantization_config = settings
    return config


def compressed(**activations):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"input_activations": activations or None}},
    }


def quark(**inputs):
    return {
        "quant_method": "quark",
        "global_quant_config": {"weight": {"dtype": "int4"}, "input_tensors": inputs},
    }


SCHEMES = {
    **AUTO_QUANTIZATION_CONFIG_MAPPING,
    **dict.fromkeys(("bitsandbytes",), transformers.BitsAndBytesConfig),
}
NEEDED = {
    "gptq": {"bits": 4},
    "bitsandbytes": {"load_in_4bit": True},
    "bitsandbytes_8bit": {"load_in_8bit": True},
}
NOT_FOR_TARGETS = {
    "bitsandbytes_8bit": "LLM.int8",
    "nvfp4": "in passes over several tokens",
    "fouroversix": "by all rows",
}


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_every_scheme_of_transformers_is_known_as_an_object_and_as_saved(scheme):
    """A new scheme of transformers fails here until it has an entry; so does one known by the text
    of an enum only."""
    try:
        live = SCHEMES[scheme](**NEEDED.get(scheme, {}))
    except (ImportError, TypeError):  # wants its library, or its library's own objects
        live = None
    saved = (
        {"quant_method": scheme}
        if live is None
        else json.loads(json.dumps(live.to_dict(), default=str))
    )
    for settings in (saved,) if live is None else (live, live.to_dict(), saved):
        found = why_rows_mix(with_quantisation(settings))
        assert (found is None) == (scheme not in NOT_FOR_TARGETS), found
        assert found is None or NOT_FOR_TARGETS[scheme] in found
    assert {method.value for method in QuantizationMethod} <= set(SCHEMES)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (None, None),
        ({"quant_method": "gptq", "bits": 4}, None),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, None),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "LLM.int8.*outlier"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, None),
        (compressed(), None),
        (compressed(dynamic=True, strategy="token"), None),
        (compressed(dynamic=False, strategy="tensor"), None),
        (
            compressed(dynamic=True, strategy="tensor"),
            "group_0 takes dynamic activation scales by tensor",
        ),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, None),
        (
            {"quant_method": "torchao", "quant_type": "Float8DynamicActivation(PerTensor())"},
            "by tensor",
        ),
        (
            {"quant_method": "quanto", "weights": "int8", "activations": "int8"},
            "one scale for all rows",
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Int8DynamicActivationInt8WeightConfig"}},
            },
            None,
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Int8StaticActivationInt8WeightConfig"}},
            },
            None,
        ),
        (compressed(dynamic="local", strategy="tensor_group"), None),
        (
            quark(is_dynamic=True, qscheme="per_tensor"),
            "Quark takes dynamic activation scales by tensor",
        ),
        (quark(is_dynamic=True, qscheme="per_channel"), None),
        (quark(is_dynamic=False, qscheme="per_tensor"), None),
        ({"quant_method": "auto-round", "bits": 4}, None),
        ({"quant_method": "auto-round", "act_bits": 8, "act_group_size": 0}, "scales by tensor"),
        ({"quant_method": "fouroversix", "dtype": "nvfp4"}, "nvfp4 activations by all rows"),
        ({"quant_method": "fouroversix", "dtype": "mxfp4"}, None),
        ({"quant_method": "brand_new"}, "'brand_new' is not known here"),
    ],
)
def test_schemes_whose_rows_influence_each_other_are_known(settings, reason):
    found = why_rows_mix(with_quantisation(settings))
    assert (found is None) == (reason is None)
    assert reason is None or re.search(reason, found)


def by_all_rows(self, x):
    """One scale from all rows of a pass, as a scheme that is not known here could have."""
    scale = x.abs().amax() / 127
    return torch.nn.functional.linear((x / scale).round() * scale, self.weight, self.bias)


def test_rows_that_influence_each_other_are_found_by_reading():
    module = llama()
    for part in module.modules():
        if isinstance(part, torch.nn.Linear):
            part.forward = by_all_rows.__get__(part)
    model = HFModel(module, name="own scheme")
    with pytest.raises(
        UnsupportedModelError,
        match="own scheme cannot be a target: logits of a token changed with the tokens",
    ):
        check_target(model)


class Int8Tensor(torch.Tensor):
    """As torchao's: takes part in `linear` only, and is made of plain tensors."""

    @staticmethod
    def __new__(cls, codes, scale, act_quant_kwargs=None):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)

    def __init__(self, codes, scale, act_quant_kwargs=None):
        self.codes, self.scale, self.act_quant_kwargs = codes, scale, act_quant_kwargs

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Int8Tensor(**inner)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.nn.functional.linear:
            x, weight, *bias = args
            return torch.nn.functional.linear(x, weight.codes.to(x.dtype) * weight.scale, *bias)
        return super().__torch_function__(function, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function.overloadpacket in (torch.ops.aten.detach, torch.ops.aten.alias):
            return Int8Tensor(args[0].codes, args[0].scale, args[0].act_quant_kwargs)
        raise NotImplementedError(f"{function} of an Int8Tensor")


def in_place(act_quant_kwargs=None):
    """A model whose linear layers, the last included, were quantised in place."""
    module = llama(tie_word_embeddings=False)
    for part in module.modules():
        if isinstance(part, torch.nn.Linear):
            scale = part.weight.detach().abs().amax(dim=1, keepdim=True) / 127
            codes = (part.weight.detach() / scale).round().to(torch.int8)
            part.weight = torch.nn.Parameter(
                Int8Tensor(codes, scale, act_quant_kwargs), requires_grad=False
            )
    return module


def test_tensor_classes_of_a_library_are_read_and_lend_a_head_their_output_layer():
    module = in_place()
    target = HFModel(module)
    assert target.rows_mix is None
    view = target_view(target)
    states = torch.randn(3, view.width)
    torch.testing.assert_close(view.output(states), module.lm_head(states))
    assert view.fingerprint == target_view(HFModel(in_place())).fingerprint
    assert (
        view.fingerprint
        != target_view(HFModel(llama(seed=1, tie_word_embeddings=False))).fingerprint
    )
    assert "by tensor" in HFModel(in_place("granularity=PerTensor()")).rows_mix
    assert HFModel(in_place("granularity=PerRow(dim=-1)")).rows_mix is None


def test_dynamic_int8_may_draft_and_is_no_target():
    """torch's own dynamic quantisation: one scale for all rows, so the logits of a token depend on
    those beside it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates the whole module
        quantised = torch.ao.quantization.quantize_dynamic(
            llama(), {torch.nn.Linear}, dtype=torch.qint8
        )
        model = HFModel(quantised, name="int8")
    assert model.vocab_size == 64
    with pytest.raises(
        UnsupportedModelError,
        match="int8 cannot be a target: .*one scale of activations from all rows",
    ):
        check_target(model)
    check_target(HFModel(llama()))
