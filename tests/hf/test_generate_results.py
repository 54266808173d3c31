"""`model.generate(custom_generate=draftproof.hf.generate)`: what comes back, what is left behind,
what is refused by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
)
from transformers.generation import logits_process as lp

import draftproof
import tiny
from draftproof.drafters.ngram import NGram
from draftproof.errors import UsageError
from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.folder import save_head
from draftproof.heads.medusa import Medusa
from draftproof.heads.target import target_view
from draftproof.hf.request import rows
from draftproof.models.hf import HFModel
from hf_calls import prompts
from tokenizers_in_code import byte_level, sentencepiece

# What comes back, and what is left behind.


@pytest.mark.parametrize(
    ("drafter", "method"),
    [
        ("ngram", "ngram"),
        ({"method": "ngram"}, "ngram"),
        (NGram(), "ngram"),
        ("draft", "draft_model"),
    ],
)
def test_the_dictionary_names_the_drafter_and_counts_its_drafts(
    model: Any, draft: Any, drafter: Any, method: str
) -> None:
    options = {"do_sample": False, "max_new_tokens": 30, "return_dict_in_generate": True}
    found = model.generate(
        **prompts(8, 8),
        custom_generate=draftproof.hf.generate,
        drafter=draft if drafter == "draft" else drafter,
        **options,
    )
    assert torch.equal(found.sequences, model.generate(**prompts(8, 8), **options).sequences)
    assert len(found.statistics) == 2
    for figures in found.statistics:
        assert (
            figures.method == method
            and figures.num_draft_tokens > 0
            and figures.num_emitted_tokens == 30
        )


def test_drafters_from_a_folder_and_none(model: Any, draft: Any, tmp_path: Path) -> None:
    draft.save_pretrained(tmp_path)
    options = {"do_sample": False, "max_new_tokens": 12, "return_dict_in_generate": True}
    hooked = {"custom_generate": draftproof.hf.generate, **options}
    found = model.generate(
        **prompts(8), drafter={"method": "draft_model", "model": str(tmp_path)}, **hooked
    )
    assert found.statistics[0].method == "draft_model"
    found = model.generate(**prompts(8), drafter="none", **hooked)
    assert (found.statistics[0].method, found.statistics[0].num_drafts) == ("none", 0)


@pytest.mark.parametrize("method", ["medusa", "eagle", "eagle3"])
def test_heads_from_a_folder(model: Any, method: str, tmp_path: Path) -> None:
    view = target_view(HFModel(model))
    heads = {
        "medusa": lambda: Medusa.of(view),
        "eagle": lambda: Eagle.of(view),
        "eagle3": lambda: Eagle3.of(view, range(0, 64, 2)),
    }
    save_head(tmp_path, heads[method](), view)
    options = {"do_sample": False, "max_new_tokens": 12, "return_dict_in_generate": True}
    found = model.generate(
        **prompts(8),
        custom_generate=draftproof.hf.generate,
        drafter={"method": method, "model": str(tmp_path)},
        **options,
    )
    assert torch.equal(found.sequences, model.generate(**prompts(8), **options).sequences)
    assert found.statistics[0].method == method and found.statistics[0].num_draft_tokens > 0


def test_several_drafters_with_a_model_among_them(model: Any, draft: Any, tmp_path: Path) -> None:
    draft.save_pretrained(tmp_path)
    listed = ["ngram", {"method": "draft_model", "model": str(tmp_path)}]
    costs = {"verify": {"1": 1.0, "9": 1.1}, "draft": 0.05}
    options = {"do_sample": False, "max_new_tokens": 12, "return_dict_in_generate": True}
    found = model.generate(
        **prompts(8),
        custom_generate=draftproof.hf.generate,
        drafter={"method": "auto", "drafters": listed, "costs": costs},
        **options,
    )
    assert torch.equal(found.sequences, model.generate(**prompts(8), **options).sequences)
    assert found.statistics[0].method == "auto" and found.statistics[0].num_draft_tokens > 0


def test_models_are_left_as_they_were(model: Any, draft: Any) -> None:
    states = [str(module.config) + str(module.generation_config) for module in (model, draft)]
    try:
        model.train()
        model.lm_head.eval()
        ours = model.generate(
            **prompts(5),
            do_sample=False,
            max_new_tokens=6,
            custom_generate=draftproof.hf.generate,
            drafter=draft,
        )
        assert model.training and model.model.training and not model.lm_head.training
    finally:
        model.eval()
    assert torch.equal(ours, model.generate(**prompts(5), do_sample=False, max_new_tokens=6))
    assert states == [
        str(module.config) + str(module.generation_config) for module in (model, draft)
    ]
    assert not list(model._forward_hooks) and not draft.training


def test_the_same_call_twice_is_the_same(model: Any, draft: Any) -> None:
    options = {"do_sample": False, "max_new_tokens": 20, "return_dict_in_generate": True}
    first, second = (
        model.generate(
            **prompts(5), custom_generate=draftproof.hf.generate, drafter=draft, **options
        ).statistics[0]
        for _ in range(2)
    )
    assert (first.num_rounds, first.num_draft_tokens, first.num_accepted_tokens_per_pos) == (
        second.num_rounds,
        second.num_draft_tokens,
        second.num_accepted_tokens_per_pos,
    )


def test_a_drafter_with_another_tokenizer_is_given_with_both_tokenizers() -> None:
    words, others = byte_level(), sentencepiece()
    target = tiny.llama(torch.float64, vocab_size=len(words))
    draft = tiny.llama(seed=1, vocab_size=len(others))
    inputs = words("The quick brown fox", return_tensors="pt")
    options = {
        "do_sample": False,
        "max_new_tokens": 12,
        "pad_token_id": 0,
        "return_dict_in_generate": True,
    }
    given = {"drafter": draft, "target_tokenizer": words, "drafter_tokenizer": others}
    for config in (None, {"heterogeneous_vocab_route": "text", "num_speculative_tokens": 3}):
        hooked = {"custom_generate": draftproof.hf.generate, "speculative_config": config}
        ours = target.generate(**inputs, **options, **given, **hooked)
        assert torch.equal(ours.sequences, target.generate(**inputs, **options).sequences)
        assert ours.statistics[0].num_draft_tokens > 0


# Refusals by name.


def stateful_guidance() -> LogitsProcessorList:
    guidance = lp.UnbatchedClassifierFreeGuidanceLogitsProcessor(2.0, tiny.llama())
    return LogitsProcessorList([guidance])


REFUSED: list[tuple[Callable[[], dict[str, Any]], str]] = [
    (lambda: {"num_beams": 2}, "num_beams=2"),
    (lambda: {"prompt_lookup_num_tokens": 3}, "drafter='ngram'"),
    (lambda: {"cache_implementation": "static"}, "cache_implementation='static'"),
    (lambda: {"use_cache": False}, "use_cache=False"),
    (lambda: {"prefill_chunk_size": 4}, "prefill_chunk_size=4"),
    (lambda: {"return_dict_in_generate": True, "output_scores": True}, "output_scores=True"),
    (lambda: {"return_dict_in_generate": True, "output_logits": True}, "output_logits=True"),
    (
        lambda: {"return_dict_in_generate": True, "output_hidden_states": True},
        "output_hidden_states=True",
    ),
    (lambda: {"assistant_model": tiny.llama()}, "drafter="),
    (lambda: {"synced_gpus": True}, "synced_gpus=True"),
    (
        lambda: {"logits_processor": stateful_guidance()},
        "UnbatchedClassifierFreeGuidanceLogitsProcessor",
    ),
    (lambda: {"encoder_repetition_penalty": 2.0}, "EncoderRepetitionPenaltyLogitsProcessor"),
    (lambda: {"position_ids": torch.arange(6)[None] + 3}, "position_ids"),
    (lambda: {"drafter": "ngramm"}, "'ngramm' is unknown"),
    (lambda: {"drafter": None}, "drafter is None"),
    (
        lambda: {"drafter": tiny.llama(), "drafter_tokenizer": byte_level()},
        "target_tokenizer and drafter_tokenizer go together",
    ),
    (
        lambda: {"target_tokenizer": byte_level(), "drafter_tokenizer": byte_level()},
        "beside a transformers model as drafter",
    ),
    (
        lambda: {"drafter": tiny.llama(), "speculative_config": {"use_heterogeneous_vocab": True}},
        "give target_tokenizer= and drafter_tokenizer=",
    ),
    (lambda: {"drafter": 5}, "int"),
    (lambda: {"drafter": "draft_model"}, "draft_model"),
    (lambda: {"drafter": {"metod": "ngram"}}, "did you mean 'method'"),
    (
        lambda: {
            "drafter": {"method": "ngram"},
            "speculative_config": {"num_speculative_tokens": 2},
        },
        "speculative_config",
    ),
    (
        lambda: {"drafter": NGram(), "speculative_config": {"method": "ngram"}},
        "contradicts the drafter",
    ),
]


@pytest.mark.parametrize(
    ("options", "expected"), REFUSED, ids=[expected for _, expected in REFUSED]
)
def test_what_is_not_supported_is_refused_by_name(
    model: Any, options: Callable[[], dict[str, Any]], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected.replace("(", r"\(")) as error:
        model.generate(
            **prompts(6), max_new_tokens=4, custom_generate=draftproof.hf.generate, **options()
        )
    assert "\n" not in str(error.value)


def test_masks_that_are_not_left_padding_are_refused(model: Any) -> None:
    inputs = prompts(6, 6)
    for row, mask in itertools.product((0, 1), ([1, 1, 1, 1, 1, 0], [1, 0, 1, 1, 1, 1], [0] * 6)):
        broken = torch.ones(2, 6, dtype=torch.long)
        broken[row] = torch.tensor(mask)
        with pytest.raises(UsageError, match=f"row {row} is not left padding"):
            rows(inputs["input_ids"], {"attention_mask": broken})


def test_embeddings_and_encoder_decoder_models_are_refused(model: Any) -> None:
    embeddings = model.get_input_embeddings()(prompts(6)["input_ids"])
    with pytest.raises(UsageError, match="inputs_embeds"):
        model.generate(
            inputs_embeds=embeddings, max_new_tokens=4, custom_generate=draftproof.hf.generate
        )
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=32,
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    with pytest.raises(UsageError, match="encoder-decoder"):
        T5ForConditionalGeneration(config).generate(
            torch.tensor([[3, 4]]), max_new_tokens=4, custom_generate=draftproof.hf.generate
        )


def test_a_sliding_window_model_gives_what_transformers_gives() -> None:
    module = tiny.mistral(torch.float64)
    options = {"do_sample": False, "max_new_tokens": 20}
    ours = module.generate(**prompts(6, 11), custom_generate=draftproof.hf.generate, **options)
    assert torch.equal(ours, module.generate(**prompts(6, 11), **options))


def test_a_prompt_that_fills_the_context_is_refused_and_a_long_text_ends_there() -> None:
    module = tiny.gpt2(torch.float64)
    options = {"do_sample": False, "custom_generate": draftproof.hf.generate}
    assert module.generate(**prompts(30), max_new_tokens=10, **options).shape[1] == 32
    with pytest.raises(UsageError, match="32"):
        module.generate(**prompts(32), max_new_tokens=4, **options)
