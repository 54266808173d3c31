"""`model.generate(custom_generate=draftproof.hf.generate)`: transformers' own tensor, its
processors, its sampling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
)
from transformers.generation import logits_process as lp

import draftproof
import tiny
from draftproof.core.pipeline import LawPipeline
from draftproof.drafters.ngram import NGram
from draftproof.hf.laws import row_params
from draftproof.hf.request import rows
from draftproof.hf.stopping import eos_token_ids
from hf_calls import END, PAD, both, prompts

# Greedy: the same tensor.


@pytest.mark.parametrize("length", [1, 2, 3, 17])
@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_greedy_is_transformers_greedy(model: Any, draft: Any, length: int, k: int) -> None:
    inputs = prompts(length)
    expected = model.generate(**inputs, do_sample=False, max_new_tokens=40)
    for drafter in ({"method": "ngram", "num_speculative_tokens": k}, draft, model, NGram()):
        config = None if isinstance(drafter, dict) else {"num_speculative_tokens": k}
        ours = model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=40,
            custom_generate=draftproof.hf.generate,
            drafter=drafter,
            speculative_config=config,
        )
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("family", [name for name in tiny.FAMILIES if name != "llama"])
def test_other_families(family: str) -> None:
    module = tiny.FAMILIES[family](torch.float64)
    expected, ours = both(module, prompts(5), do_sample=False, max_new_tokens=20)
    assert torch.equal(ours, expected)
    expected, ours = both(module, prompts(5), drafter=module, do_sample=False, max_new_tokens=20)
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("drafter", ["ngram", "draft"])
def test_left_padded_rows_are_transformers_rows(model: Any, draft: Any, drafter: str) -> None:
    options = {"do_sample": False, "max_new_tokens": 24}
    free = model.generate(**prompts(2, 7, 15), **options)
    end = int(free[1, 15 + 5])  # one row ends early, the others go on or end elsewhere
    expected, ours = both(
        model,
        prompts(2, 7, 15),
        draft if drafter == "draft" else drafter,
        eos_token_id=end,
        **options,
    )
    assert torch.equal(ours, expected)
    assert (ours[1, 21:] == PAD).all() and ours.shape[1] > 21


def test_without_a_mask_padding_is_found_as_transformers_finds_it(model: Any) -> None:
    ids = prompts(3, 6)["input_ids"]
    expected, ours = both(model, {"input_ids": ids}, do_sample=False, max_new_tokens=12)
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("place", range(8))
def test_an_end_token_inside_a_block_ends_the_row(model: Any, place: int) -> None:
    inputs = prompts(6)
    free = model.generate(**inputs, do_sample=False, max_new_tokens=12)
    ends = [int(free[0, 6 + place]), 63]
    expected, ours = both(
        model, inputs, model, do_sample=False, max_new_tokens=12, eos_token_id=ends
    )
    assert torch.equal(ours, expected)


@pytest.mark.parametrize(
    "limit", [{"max_new_tokens": 1}, {"max_new_tokens": 3}, {"max_length": 10}]
)
def test_limits(model: Any, limit: dict[str, int]) -> None:
    expected, ours = both(model, prompts(6), model, do_sample=False, **limit)
    assert torch.equal(ours, expected)


# Processors: each once, in transformers' order, on every drafted position.


class Push(lp.LogitsProcessor):
    """The caller's own: token (sum of the ids so far mod 64) gains 3."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        lucky = input_ids.sum(dim=1) % scores.shape[-1]
        return scores.scatter_add(
            1, lucky[:, None], torch.full((len(scores), 1), 3.0, dtype=scores.dtype)
        )


def one_of_three(batch: int, ids: torch.Tensor) -> list[int]:
    start = (int(ids[-1]) * 5 + batch) % 60
    return [start, start + 1, start + 2]


CONFIGS: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 1.7},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "bad_words_ids": {"bad_words_ids": [[9], [4, 5], [11, 3]]},
    "sequence_bias of one token": {"sequence_bias": [[[3], 4.0], [[5], -4.0]]},
    "sequence_bias of two tokens": {
        "sequence_bias": [[[3], 4.0], [[3, 3], -9.0]],
        "repetition_penalty": 1.3,
    },
    "min_new_tokens": {"min_new_tokens": 9, "eos_token_id": [END, 3, 40, 41, 42]},
    "min_length": {"min_length": 18, "eos_token_id": [END, 3, 40, 41, 42]},
    "suppress_tokens": {"suppress_tokens": [1, 2, 3, 4, 40]},
    "begin_suppress_tokens": {"begin_suppress_tokens": list(range(5, 60))},
    "forced_eos_token_id": {"forced_eos_token_id": END, "eos_token_id": END},
    "exponential_decay_length_penalty": {
        "exponential_decay_length_penalty": (3, 1.5),
        "eos_token_id": END,
    },
    "remove_invalid_values": {"remove_invalid_values": True, "renormalize_logits": True},
    "prefix_allowed_tokens_fn": {"prefix_allowed_tokens_fn": one_of_three},
    "own processor": {"logits_processor": LogitsProcessorList([Push()])},
    "own in the place of the config's": {
        "repetition_penalty": 1.7,
        "logits_processor": LogitsProcessorList([lp.RepetitionPenaltyLogitsProcessor(1.2)]),
    },
    "own warper": {
        "logits_processor": LogitsProcessorList([lp.TemperatureLogitsWarper(0.5), Push()])
    },
    "many": {
        "repetition_penalty": 1.2,
        "bad_words_ids": [[9]],
        "min_new_tokens": 4,
        "eos_token_id": END,
        "suppress_tokens": [1],
        "no_repeat_ngram_size": 3,
        "logits_processor": LogitsProcessorList([Push()]),
    },
}
WARPERS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.6, "top_k": 0},
    "defaults": {},
    "top_p and min_p": {"temperature": 1.4, "top_k": 30, "top_p": 0.9, "min_p": 0.02},
    "typical": {"typical_p": 0.8, "top_k": 0},
    "top_h among the rest": {"top_h": 0.6, "temperature": 0.9, "top_k": 20, "top_p": 0.95},
    "cutoffs": {"epsilon_cutoff": 0.01, "eta_cutoff": 0.02, "top_k": 0, "renormalize_logits": True},
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("lengths", [(6,), (2, 9)], ids=["one", "padded"])
def test_processors_act_once_and_on_every_drafted_position(
    model: Any, draft: Any, name: str, lengths: tuple[int, ...]
) -> None:
    for drafter in ("ngram", draft):
        expected, ours = both(
            model, prompts(*lengths), drafter, do_sample=False, max_new_tokens=20, **CONFIGS[name]
        )
        assert torch.equal(ours, expected)


def handed_over(model: Any, inputs: dict[str, torch.Tensor], **options: Any) -> dict[str, Any]:
    """What transformers gives to a custom function."""
    found: dict[str, Any] = {}

    def spy(module: Any, input_ids: torch.Tensor, **given: Any) -> torch.Tensor:
        found.update(given, input_ids=input_ids)
        return input_ids

    model.generate(**inputs, custom_generate=spy, **options)
    return found


@pytest.mark.parametrize("lengths", [(6,), (2, 9)], ids=["one", "padded"])
@pytest.mark.parametrize("warpers", WARPERS)
@pytest.mark.parametrize("name", CONFIGS)
def test_the_law_is_the_one_transformers_would_sample_from(
    model: Any, name: str, warpers: str, lengths: tuple[int, ...]
) -> None:
    options = {"do_sample": True, "max_new_tokens": 20, **CONFIGS[name], **WARPERS[warpers]}
    given = handed_over(model, prompts(*lengths), **options)
    processors, ids = given["logits_processor"], given["input_ids"]
    chosen = torch.Generator().manual_seed(1)
    batch = rows(ids, given)
    for drafted in ((), (3,), (3, 9, 4)):
        extended = torch.cat(
            [ids, torch.tensor([list(drafted)] * len(ids), dtype=torch.long).reshape(len(ids), -1)],
            dim=1,
        )
        logits = 3 * torch.randn(len(ids), tiny.VOCAB, generator=chosen)
        expected = processors(extended, logits.clone()).softmax(-1)
        for number, row in enumerate(batch):
            eos = eos_token_ids(given["stopping_criteria"], tiny.VOCAB)
            params = row_params(
                processors,
                row,
                number,
                samples=1,
                greedy=False,
                max_tokens=20,
                eos=set(eos),
                seed=0,
            )
            pipeline = LawPipeline(
                params, num_prompt_tokens=len(row.prompt), vocab_size=tiny.VOCAB, eos_token_ids=eos
            )
            law = pipeline.law(logits[number], list(row.prompt), drafted)
            torch.testing.assert_close(
                torch.as_tensor(law, dtype=torch.float32), expected[number], rtol=0, atol=2e-6
            )


def test_common_parameters_become_fields_that_drafters_can_heed(model: Any) -> None:
    options = {
        "do_sample": True,
        "max_new_tokens": 20,
        "suppress_tokens": [9],
        "repetition_penalty": 1.1,
        "temperature": 0.7,
    }
    given = handed_over(model, prompts(5), top_p=0.9, **options)
    (row,) = rows(given["input_ids"], given)
    params = row_params(
        given["logits_processor"], row, 0, samples=1, greedy=False, max_tokens=20, eos=set(), seed=0
    )
    assert (params.suppress_tokens, params.repetition_penalty, params.temperature) == (
        (9,),
        1.1,
        0.7,
    )
    assert (params.top_k, params.top_p, params.logits_processors, params.logits_warpers) == (
        50,
        0.9,
        (),
        (),
    )


# Sampling.


def test_torchs_seed_replays_a_call(model: Any, draft: Any) -> None:
    def run(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        options = {
            "do_sample": True,
            "top_k": 0,
            "max_new_tokens": 16,
            "custom_generate": draftproof.hf.generate,
        }
        return torch.stack(
            [model.generate(**prompts(5), drafter=draft, **options) for _ in range(2)]
        )

    first = run(1)
    assert torch.equal(run(1), first)
    assert not torch.equal(run(2), first)
    assert not torch.equal(first[0], first[1])  # the generator moves on from call to call


def test_greedy_leaves_torchs_generator_alone(model: Any) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    both(model, prompts(5), do_sample=False, max_new_tokens=4)
    assert torch.equal(torch.get_rng_state(), before)


def test_sampled_tokens_follow_the_targets_law(model: Any, draft: Any) -> None:
    """300 first tokens against the exact law: chi-square over the six that top-k leaves, false
    alarm 1e-5."""
    from scipy.stats import chisquare

    inputs, count = prompts(5), 300
    torch.manual_seed(0)
    options = {
        "do_sample": True,
        "top_k": 6,
        "temperature": 3.0,
        "max_new_tokens": 2,
        "num_return_sequences": count,
    }
    ours = model.generate(
        **inputs, custom_generate=draftproof.hf.generate, drafter=draft, **options
    )
    assert ours.shape == (count, 7) and (ours[:, :5] == inputs["input_ids"]).all()
    with torch.no_grad():
        best = (model(**inputs).logits[0, -1].double() / 3.0).topk(6)
    observed = torch.bincount(ours[:, 5], minlength=tiny.VOCAB)[best.indices]
    assert int(observed.sum()) == count
    expected = best.values.softmax(-1) * count
    assert chisquare(observed.numpy(), expected.numpy()).pvalue > 1e-5


def test_several_sequences_of_several_prompts(model: Any) -> None:
    torch.manual_seed(0)
    inputs = prompts(3, 6)
    options = {"do_sample": True, "top_k": 0, "max_new_tokens": 6, "num_return_sequences": 3}
    ours = model.generate(**inputs, custom_generate=draftproof.hf.generate, **options)
    assert torch.equal(ours[:, :6], inputs["input_ids"].repeat_interleave(3, dim=0))
    assert len({tuple(row) for row in ours[:, 6:].tolist()}) == 6
