"""The law equals the softmax of what transformers' own processors make of the same logits and
history."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig
from transformers.generation.utils import GenerationMixin

from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Array

EOS = (2, 5)


class Generator(GenerationMixin):
    """Only what `_get_logits_processor` reads of a model."""

    config = SimpleNamespace(is_encoder_decoder=False)


def scores_of_transformers(
    config: GenerationConfig,
    logits: Array,
    history: list[int],
    num_prompt_tokens: int,
    extra: list[Any],
) -> torch.Tensor:
    config._eos_token_tensor = torch.tensor(EOS)
    config.max_length = num_prompt_tokens + config.max_new_tokens
    processors = Generator()._get_logits_processor(
        config, input_ids_seq_length=num_prompt_tokens, logits_processor=extra, device="cpu"
    )
    return processors(torch.tensor([history]), torch.as_tensor(logits)[None].clone())[0]


def law_of_transformers(*arguments: Any) -> Array:
    return scores_of_transformers(*arguments).softmax(-1).numpy()


def random_fields(dice: random.Random, vocab_size: int) -> dict[str, Any]:
    """Each parameter present about every other time, with values that bite."""

    def ids(count: int) -> list[int]:
        return dice.sample(range(vocab_size), count)

    choices: dict[str, Any] = {
        "temperature": lambda: dice.choice([0.05, 0.7, 1.3, 5.0]),
        "top_k": lambda: dice.choice([1, 3, 10, vocab_size + 9]),
        "top_p": lambda: dice.choice([0.05, 0.5, 0.9, 0.999]),
        "min_p": lambda: dice.choice([0.01, 0.2, 1.0]),
        "repetition_penalty": lambda: dice.choice([0.6, 1.2, 2.0]),
        "sequence_bias": lambda: [[[t], dice.randint(-8, 8) / 4] for t in ids(4)],
        "bad_words_ids": lambda: [
            ids(1),
            *(ids(dice.choice([2, 2, 3])) for _ in range(30)),
            [EOS[0]],
        ],
        "suppress_tokens": lambda: ids(3),
        "min_new_tokens": lambda: dice.choice([1, 3, 30]),
        "no_repeat_ngram_size": lambda: dice.choice([1, 2, 3]),
        "typical_p": lambda: dice.choice([0.3, 0.9]),
        "epsilon_cutoff": lambda: dice.choice([0.01, 0.2]),
        "eta_cutoff": lambda: dice.choice([0.01, 0.2]),
        "exponential_decay_length_penalty": lambda: (dice.choice([0, 2]), 1.3),
        "begin_suppress_tokens": lambda: ids(4),
        "forced_eos_token_id": lambda: list(EOS),
        "remove_invalid_values": lambda: True,
        "renormalize_logits": lambda: True,
    }
    rare = list(choices)[9:]
    fields = {
        name: make()
        for name, make in choices.items()
        if dice.random() < (0.15 if name in rare else 0.5)
    }
    if "forced_eos_token_id" in fields:
        fields = {name: value for name, value in fields.items() if "suppress" not in name}
    return fields


def random_case(
    dice: random.Random, vocab_size: int
) -> tuple[GenerationConfig, Array, list[int], int]:
    fields = {"top_k": 0, **random_fields(dice, vocab_size)}
    config = GenerationConfig(do_sample=True, eos_token_id=list(EOS), max_new_tokens=8, **fields)
    if fields.get("min_new_tokens", 0) > 8:
        config.max_new_tokens = 40
    num_prompt_tokens = dice.randint(1, 9)
    few = dice.choice([4, vocab_size])
    history = [dice.randrange(few) for _ in range(num_prompt_tokens + dice.randint(0, 8))]
    logits = np.random.default_rng(dice.randrange(2**32)).standard_normal(vocab_size) * dice.choice(
        [1, 4]
    )
    return config, logits, history, num_prompt_tokens


@pytest.mark.parametrize("seed", range(8))
def test_random_configs_give_the_law_of_transformers(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(60):
        config, logits, history, num_prompt_tokens = random_case(
            dice, vocab_size := dice.choice([11, 60, 300])
        )
        bump = 1.5 * torch.arange(vocab_size).remainder(2)
        extra = (
            [lambda ids, scores, bump=bump: scores + bump * (ids.shape[1] % 2)]
            if dice.random() < 0.2
            else []
        )
        params = SamplingParams.from_generation_config(
            config, num_prompt_tokens=num_prompt_tokens, logits_processors=extra
        )
        pipeline = LawPipeline(
            params, num_prompt_tokens=num_prompt_tokens, vocab_size=vocab_size, eos_token_ids=EOS
        )
        expected = law_of_transformers(config, logits, history, num_prompt_tokens, extra)
        if not np.isfinite(expected).all():
            continue  # the bans happen to leave nothing: covered by the tests of refusals
        split = dice.randint(num_prompt_tokens, len(history))
        for array in (logits, torch.from_numpy(logits)):
            found = np.asarray(pipeline.law(array, history[:split], history[split:]))
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12, err_msg=str(params))
            assert ((found == 0) == (expected == 0)).all(), params


@pytest.mark.parametrize("seed", range(3))
def test_greedy_tokens_are_those_of_transformers(seed: int) -> None:
    dice = random.Random(100 + seed)
    for _ in range(60):
        config, logits, history, num_prompt_tokens = random_case(dice, vocab_size := 60)
        config.do_sample = False
        scores = scores_of_transformers(config, logits, history, num_prompt_tokens, [])
        if torch.isinf(scores).all():
            continue
        params = SamplingParams.from_generation_config(config, num_prompt_tokens=num_prompt_tokens)
        pipeline = LawPipeline(
            params, num_prompt_tokens=num_prompt_tokens, vocab_size=vocab_size, eos_token_ids=EOS
        )
        assert pipeline.greedy
        law = pipeline.law(logits, history)
        best = int(scores.argmax())
        assert law.tolist() == [float(t == best) for t in range(vocab_size)]
        assert pipeline.greedy_tokens(torch.from_numpy(logits)[None], history, [()]) == [best]


def test_ties_at_the_kth_token_and_at_min_p_are_kept_as_in_transformers() -> None:
    dice = random.Random(5)
    rng = np.random.default_rng(5)
    for _ in range(100):
        logits = rng.integers(0, 5, 30).astype(np.float64)
        fields = {
            "top_k": dice.randint(1, 29),
            "min_p": dice.choice([None, float(np.exp(-1.0)), 1.0]),
        }
        config = GenerationConfig(do_sample=True, max_new_tokens=8, **fields)
        params = SamplingParams.from_generation_config(config)
        pipeline = LawPipeline(params, num_prompt_tokens=1, vocab_size=30)
        expected = law_of_transformers(config, logits, [0], 1, [])
        np.testing.assert_allclose(pipeline.law(logits, [0]), expected, rtol=0, atol=1e-12)


def test_a_float32_row_of_real_size_agrees_to_float32() -> None:
    rng = np.random.default_rng(2)
    logits = torch.from_numpy((rng.standard_normal(49152) * 3).astype(np.float32))
    history = rng.integers(0, 49152, 500).tolist()
    config = GenerationConfig(
        do_sample=True,
        temperature=0.7,
        top_k=50,
        top_p=0.9,
        repetition_penalty=1.2,
        max_new_tokens=8,
        min_p=0.01,
    )
    params = SamplingParams.from_generation_config(config)
    found = LawPipeline(params, num_prompt_tokens=100, vocab_size=49152).law(logits, history)
    assert found.dtype == torch.float32
    expected = law_of_transformers(config, logits, history, 100, [])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
