"""Slices of a target: which layers run, that weights are shared, and what is refused."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.errors import UnsupportedModelError, UsageError
from draftproof.models.hf import HFModel
from draftproof.models.protocol import Step, extend
from draftproof.models.slices import early_exit, skipping
from sampling import assert_same_law, exact_law
from tiny import FAMILIES, fresh_logits, gpt2, llama, mistral

LAYERS = {"gpt2": {"n_layer": 4}}
PROMPT = [3, 1, 4, 1, 5, 9]


def four_layers(family, **changes):
    return HFModel(FAMILIES[family](**LAYERS.get(family, {"num_hidden_layers": 4}), **changes))


def read(model, tokens):
    return extend(Step(model.open(), tokens)).logits


def layers_of(module):
    return module.transformer.h if hasattr(module, "transformer") else module.model.layers


def without(module, layers=(), attention=(), mlp=()):
    """The reference: a deep copy whose own forward, without a cache, runs what is left."""
    slim = copy.deepcopy(module)
    held = layers_of(slim)
    for number in attention:
        block = held[number]
        last = block.attn.c_proj if hasattr(block, "attn") else block.self_attn.o_proj
        silence(last)
    for number in mlp:
        block = held[number]
        silence(block.mlp.c_proj if hasattr(block.mlp, "c_proj") else block.mlp.down_proj)
    for number in sorted(layers, reverse=True):
        del held[number]
    slim.config.num_hidden_layers = len(held)
    if getattr(slim.config, "layer_types", None):
        slim.config.layer_types = slim.config.layer_types[: len(held)]
    return slim


def silence(linear):
    with torch.no_grad():
        linear.weight.zero_()
        if linear.bias is not None:
            linear.bias.zero_()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("count", [1, 3])
def test_an_early_exit_runs_the_first_layers(family, count):
    target = four_layers(family)
    made = early_exit(target, count)
    torch.testing.assert_close(
        read(made, PROMPT), fresh_logits(without(target.module, range(count, 4)), PROMPT)
    )
    assert made.num_layers == count


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "skipped",
    [
        {"layers": (0, 2)},
        {"attention": (1, 3)},
        {"mlp": (0,)},
        {"layers": (1,), "attention": (2,), "mlp": (2, 3)},
    ],
)
def test_what_is_skipped_does_not_run(family, skipped):
    target = four_layers(family)
    made = skipping(target, **skipped)
    torch.testing.assert_close(
        read(made, PROMPT), fresh_logits(without(target.module, **skipped), PROMPT)
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_target_is_untouched_and_weights_are_shared(family):
    target = four_layers(family)
    before = read(target, PROMPT)
    made = skipping(target, (0, 2), (3,))
    assert torch.equal(read(target, PROMPT), before)
    assert target.module.config.num_hidden_layers == 4
    assert [part.layer_idx for part in target.module.modules() if hasattr(part, "layer_idx")] == [
        0,
        1,
        2,
        3,
    ]
    owned = {parameter.data_ptr() for parameter in target.module.parameters()}
    assert {parameter.data_ptr() for parameter in made.module.parameters()} < owned


CONFIGS = [
    {"method": "early_exit", "early_exit_layers": 2},
    {"method": "layer_skip", "skip_layers": [1]},
    {"method": "layer_skip", "skip_attention_layers": [1, 2], "skip_mlp_layers": [3]},
    {"method": "early_exit", "early_exit_layers": 3, "tree": "2,1"},
]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: " ".join(map(str, config.values())))
def test_greedy_text_is_plain_decodings(family, config):
    made = SpeculativeDecoder(None, four_layers(family), speculative_config=config)
    params = SamplingParams(max_tokens=16, temperature=0)
    for prompt in (PROMPT, [2, 6], [7]):
        result = made.generate(prompt, params)
        assert result.token_ids == made.plain.generate(prompt, params).token_ids
        assert result.stats.method == config["method"]
        assert result.stats.num_draft_tokens > 0


@pytest.mark.parametrize(
    "config", CONFIGS[:3], ids=lambda config: " ".join(map(str, config.values()))
)
def test_the_sampled_law_is_the_targets(config):
    made = SpeculativeDecoder(
        None,
        four_layers("llama", vocab_size=4),
        speculative_config=config | {"num_speculative_tokens": 2},
    )
    assert made.rule.name == "token"
    assert_same_law(exact_law(made, [1, 2], 3), exact_law(made.plain, [1, 2], 3))


def test_a_layerskip_checkpoint_says_where_it_exits():
    module = llama(num_hidden_layers=4)
    module.generation_config.assistant_early_exit = 2
    made = SpeculativeDecoder(None, HFModel(module), speculative_config={"method": "early_exit"})
    assert made.drafter.model.num_layers == 2


def test_a_window_goes_with_its_layer():
    module = mistral(num_hidden_layers=3)
    made = skipping(HFModel(module), (0,))
    long = [(5 * i) % 64 for i in range(20)]
    torch.testing.assert_close(
        read(made, long), fresh_logits(without(module, (0,)), long), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    "config, said",
    [
        ({"method": "early_exit"}, "needs early_exit_layers"),
        (
            {"method": "early_exit", "early_exit_layers": 4},
            "early_exit_layers is 4; .* has 4 layers, so 1 to 3 can draft",
        ),
        (
            {"method": "early_exit", "early_exit_layers": 0},
            "early_exit_layers is 0; allowed: a whole number from 1",
        ),
        ({"method": "layer_skip"}, "skips some of the 4 layers of .*, not none"),
        ({"method": "layer_skip", "skip_layers": [0, 1, 2, 3]}, "not all"),
        (
            {"method": "layer_skip", "skip_mlp_layers": [7]},
            "skip_mlp_layers names layer 7; .* has 4 layers, 0 to 3",
        ),
        ({"method": "layer_skip", "skip_layers": [1, 1]}, "a list of different layers"),
        ({"method": "layer_skip", "skip_layers": [True]}, "a list of different layers"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(config, said):
    with pytest.raises(UsageError, match=said):
        SpeculativeDecoder(None, four_layers("llama"), speculative_config=config)


def test_models_without_layers_to_take_are_refused_by_name():
    with pytest.raises(UsageError, match="needs a transformers model; table is none"):
        early_exit(TableModel([[0.5, 0.5], [0.5, 0.5]]), 1)
    shape = dict(
        vocab_size=64, hidden_size=32, ffn_dim=64, num_hidden_layers=3, num_attention_heads=4
    )
    opt = OPTForCausalLM(
        OPTConfig(**shape, max_position_embeddings=64, word_embed_proj_dim=32)
    ).eval()
    with pytest.raises(UnsupportedModelError, match="layers of OPTForCausalLM cannot be found"):
        early_exit(HFModel(opt), 1)
    scaled = gpt2(n_layer=3, scale_attn_by_inverse_layer_idx=True)
    with pytest.raises(UnsupportedModelError, match="scales attention by the number of the layer"):
        early_exit(HFModel(scaled), 1)
    assert isinstance(GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2)), GPT2LMHeadModel)


def test_passes_of_a_slice_and_its_target_take_turns():
    """Both attend through the same layers, whose way of attending is another while a pass of ours
    runs: a pass of the slice that ended within one of the target would set it back."""
    target = four_layers("llama")
    draft = early_exit(target, 2)
    contexts = [PROMPT, PROMPT[::-1]]
    expected = [read(target, [*context, 7])[-1] for context in contexts]
    sessions = [target.open() for _ in contexts]
    for session, context in zip(sessions, contexts, strict=True):
        extend(Step(session, context))
    begun, within = threading.Event(), threading.Event()
    other = threading.Thread(target=read, args=(draft, PROMPT))

    def meet(*_):
        if threading.current_thread() is other:
            begun.set()
            within.wait(timeout=1.0)  # for the target's pass, which waits in turn
        elif begun.is_set():
            within.set()
            other.join()

    handle = layers_of(target.module)[0].register_forward_hook(meet)
    other.start()
    assert begun.wait(timeout=60)
    outputs = target.extend_many([Step(session, [7]) for session in sessions])
    handle.remove()
    other.join()
    assert target.shares_passes
    for output, row in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output.logits[0], row)
