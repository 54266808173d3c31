"""Frequencies that change with the length of the text: transformers' own text from every path, or a
refusal by name.

The switch lies at 24 tokens: frequencies of Phi-3 are 1 up to there and divided by 1, 4, 16, 64
beyond."""

from __future__ import annotations

import threading
from functools import cache

import pytest
import torch

from cache_families import build, llama4
from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.errors import UnsupportedModelError, UsageError
from draftproof.models.hf import HFModel
from draftproof.models.protocol import Step, extend
from tiny import VOCAB, fresh_logits, llama

SWITCH, NEW = 24, 30
FACTORS = {
    "short_factor": [1.0] * 4,
    "long_factor": [1.0, 4.0, 16.0, 64.0],
    "original_max_position_embeddings": SWITCH,
}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, **FACTORS}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
MSCALES = {"short_mscale": 1.0, "long_mscale": 1.3}
SHORT, AT_SWITCH, LONG = ([(5 * i + 2) % VOCAB for i in range(n)] for n in (12, SWITCH, SWITCH + 9))
PARAMS = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)


def phi3(seed: int = 0):
    longrope = {"rope_parameters": dict(LONGROPE), "original_max_position_embeddings": SWITCH}
    return build("Phi3", torch.float64, seed, **longrope)


def phimoe(seed: int = 0):
    longrope = {"rope_parameters": LONGROPE | MSCALES, "original_max_position_embeddings": SWITCH}
    return build("Phimoe", torch.float64, seed, num_local_experts=4, **longrope)


@cache
def model_of(make) -> HFModel:
    return HFModel(make())


@cache
def drafter_of(make) -> HFModel:
    """Most of its drafts are the target's own tokens: drafts are accepted on both sides of the
    switch and across it."""
    module = make()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in module.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return HFModel(module)


def own_text(module, prompt: list[int]) -> list[int]:
    """What transformers generates by itself."""
    ids = torch.tensor([prompt])
    text = module.generate(
        ids, max_new_tokens=NEW, do_sample=False, attention_mask=torch.ones_like(ids)
    )
    return text[0, len(prompt) :].tolist()


FAMILIES = pytest.mark.parametrize("make", [phi3, phimoe])


@FAMILIES
def test_the_text_is_transformers_own_across_the_switch(make):
    target = model_of(make)
    decoder = SpeculativeDecoder(
        drafter_of(make), target, speculative_config={"num_speculative_tokens": 8}
    )
    prompts = [SHORT, AT_SWITCH[:-1], AT_SWITCH, LONG]
    wanted = [own_text(target.module, prompt) for prompt in prompts]
    for prompt, text in zip(prompts, wanted, strict=True):
        assert list(decoder.plain.generate(prompt, PARAMS).token_ids) == text
        result = decoder.generate(prompt, PARAMS)
        assert list(result.token_ids) == text
        assert result.stats.num_accepted_tokens > 5
    assert [
        list(result.token_ids) for result in decoder.generate(prompts, PARAMS, batch_size=4)
    ] == wanted
    assert [
        list(result.token_ids) for result in decoder.plain.generate(prompts, PARAMS, batch_size=4)
    ] == wanted


def test_trees_are_verified_across_the_switch():
    target = model_of(phi3)
    config = {"num_speculative_tokens": 3, "tree": "2,2,1"}
    decoder = SpeculativeDecoder(drafter_of(phi3), target, speculative_config=config)
    assert list(decoder.generate(SHORT, PARAMS).token_ids) == own_text(target.module, SHORT)


def test_a_session_that_is_kept_crosses_the_switch_and_comes_back():
    target = model_of(phi3)
    decoder = SpeculativeDecoder(
        drafter_of(phi3), target, speculative_config={"num_speculative_tokens": 4}
    )
    session = decoder.session()
    for prompt in (SHORT, SHORT + own_text(target.module, SHORT) + [7], SHORT[:9], LONG):
        assert list(session.generate(prompt, PARAMS).token_ids) == own_text(target.module, prompt)


@FAMILIES
@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_that_of_a_fresh_forward_over_its_own_text(make, seed):
    """Chains and trees of any length, kept and rolled back to and fro over the switch."""
    model = model_of(make)
    generator = torch.Generator().manual_seed(seed)

    def below(bound: int) -> int:
        return int(torch.randint(bound, (), generator=generator))

    session, tokens = model.open(), []
    for _ in range(12):
        new = [below(VOCAB) for _ in range(1 + below(14))]
        is_tree = below(2) == 1
        parents = (
            [below(node + 1) - 1 for node in range(len(new))]
            if is_tree
            else list(range(-1, len(new) - 1))
        )
        logits = extend(Step(session, new, parents=parents if is_tree else None)).logits
        paths: list[list[int]] = []
        for node, parent in enumerate(parents):
            paths.append((paths[parent] if parent >= 0 else []) + [node])
            text = tokens + [new[place] for place in paths[-1]]
            torch.testing.assert_close(
                logits[node], fresh_logits(model.module, text)[-1], rtol=1e-6, atol=1e-6
            )
        kept = paths[below(len(paths))]
        session.keep(kept)
        tokens += [new[place] for place in kept]
        if below(3) == 0 or len(tokens) > 60:
            tokens = tokens[: below(len(tokens) + 1)]
            session.rollback(len(tokens))
        assert list(session.tokens) == tokens


def test_the_text_is_read_again_once_and_by_this_thread_only():
    model = HFModel(phi3())
    counts: list[int] = []
    hook = model.module.model.embed_tokens.register_forward_hook(
        lambda layer, args, out: counts.append(out.shape[1])
    )
    decoder = SpeculativeDecoder(
        drafter_of(phi3), model, speculative_config={"num_speculative_tokens": 8}
    )
    decoder.plain.generate(SHORT, PARAMS)
    assert sum(counts) == len(SHORT) + NEW - 1 + SWITCH
    counts.clear()
    result = decoder.generate(SHORT, PARAMS)
    hook.remove()
    longer_than_a_draft = [count for count in counts if count > 9]
    assert len(longer_than_a_draft) == 2, (
        "the prompt, and the text once more, whatever was drafted and rejected there"
    )
    assert result.stats.num_accepted_tokens > 5
    assert not any(
        layer._forward_hooks or layer._forward_pre_hooks for layer in model.switch.layers
    )

    elsewhere: list[torch.Tensor] = []
    wanted = fresh_logits(model.module, SHORT)
    with model.switch.turned(True):
        other = threading.Thread(target=lambda: elsewhere.append(fresh_logits(model.module, SHORT)))
        other.start()
        other.join()
        assert not torch.equal(fresh_logits(model.module, SHORT), wanted)
    assert torch.equal(elsewhere[0], wanted)


def test_a_switch_that_no_text_reaches_is_none():
    assert HFModel(phi3(), max_length=SWITCH).switch is None
    assert model_of(phi3).session_bytes(SWITCH + 1) > model_of(phi3).session_bytes(SWITCH)


KEPT_KEYS = [
    (lambda: llama(torch.float64, rope_parameters=dict(LONGROPE)), "longrope"),
    (
        lambda: llama(torch.float64, rope_parameters=dict(DYNAMIC), max_position_embeddings=SWITCH),
        "dynamic",
    ),
]


@pytest.mark.parametrize(("make", "kind"), KEPT_KEYS, ids=["longrope", "dynamic"])
def test_where_the_text_depends_on_how_it_was_read_it_ends_before(make, kind):
    module = make()
    model = HFModel(module)
    decoder = SpeculativeDecoder(
        HFModel(make()), model, speculative_config={"num_speculative_tokens": 8}
    )
    room = SWITCH - len(SHORT)
    for result in (decoder.generate(SHORT, PARAMS), decoder.plain.generate(SHORT, PARAMS)):
        assert list(result.token_ids) == own_text(module, SHORT)[:room]
        assert result.finish_reason == "length"
    said = rf"{SWITCH} tokens.*rotary embedding of LlamaConfig \({kind}\)"
    with pytest.raises(UsageError, match=said):
        decoder.generate(LONG, PARAMS)
    with pytest.raises(UsageError, match=said):
        HFModel(module, max_length=SWITCH + 1)
    assert kind in model.notes[0]


@pytest.mark.parametrize(
    ("make", "position"),
    [(lambda: llama(torch.float64), 127), (phi3, SWITCH)],
    ids=["llama", "phi3"],
)
def test_a_change_in_code_of_its_own_is_found_when_wrapped(make, position):
    """Neither a switch that the config does not tell of, nor one whose layer cannot be turned, goes
    by."""
    module = make()
    rotary = module.model.rotary_emb
    rotary.rope_type, forward = "own", rotary.forward

    def stretched(x, position_ids):
        return forward(x, position_ids * (0.25 if int(position_ids.max()) >= SWITCH else 1.0))

    rotary.forward = stretched
    with pytest.raises(
        UnsupportedModelError,
        match=f"{type(module).__name__} .* a later one stands at position {position}",
    ):
        HFModel(module)


def test_yarn_reaches_its_scaled_positions():
    module = llama(torch.float64, rope_parameters=dict(YARN), max_position_embeddings=32)
    model = HFModel(module)
    assert model.max_length == 128
    assert list(SpeculativeDecoder(None, model).plain.generate(LONG, PARAMS).token_ids) == own_text(
        module, LONG
    )
    assert HFModel(module, max_length=128).max_length == 128
    with pytest.raises(UsageError, match="allows 1 to 128 tokens"):
        HFModel(module, max_length=129)


def test_a_temperature_by_place_is_read_in_chains_of_one_sequence():
    """Llama 4 counts places of a pass, beyond its first 8192 (here 16) tokens, where a tree or a
    second sequence stands elsewhere than it counts."""
    module = llama4(torch.float64, floor_scale=16)
    model = HFModel(module)
    assert not model.supports_trees
    assert HFModel(module, max_length=15).supports_trees
    prompts = [SHORT, LONG]
    decoder = SpeculativeDecoder(
        HFModel(llama4(torch.float64, seed=1)),
        model,
        speculative_config={"num_speculative_tokens": 4},
    )
    wanted = [own_text(module, prompt) for prompt in prompts]
    assert [
        list(result.token_ids) for result in decoder.generate(prompts, PARAMS, batch_size=2)
    ] == wanted
