"""Preset models against transformers' own classes, built without weights from the shapes of their
configurations."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from draftproof.simulate.presets import CARDS, MODELS

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama-3.1-70B": (
        "llama",
        {"vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672},
    ),
    "Llama-3.1-8B": (
        "llama",
        {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336},
    ),
    "Llama-3.2-1B": (
        "llama",
        {
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "tie_word_embeddings": True,
        },
    ),
    "Qwen2.5-7B": (
        "qwen2",
        {"vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944},
    ),
    "Qwen2.5-1.5B": (
        "qwen2",
        {
            "vocab_size": 151936,
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "tie_word_embeddings": True,
        },
    ),
    "Qwen2.5-0.5B": (
        "qwen2",
        {
            "vocab_size": 151936,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "tie_word_embeddings": True,
        },
    ),
    "Qwen3-30B-A3B": (
        "qwen3_moe",
        {
            "vocab_size": 151936,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
        },
    ),
    "Qwen3-0.6B": (
        "qwen3",
        {
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "tie_word_embeddings": True,
        },
    ),
    "SmolLM2-135M": (
        "llama",
        {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "tie_word_embeddings": True,
        },
    ),
}


def test_every_preset_is_checked() -> None:
    assert CONFIGS.keys() == MODELS.keys()


@pytest.mark.parametrize("name", CONFIGS)
def test_parameter_counts_follow_from_the_shapes(name: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    preset, (kind, sizes) = MODELS[name], CONFIGS[name]
    heads = {
        "num_attention_heads": preset.num_heads,
        "num_key_value_heads": preset.num_kv_heads,
        "head_dim": preset.head_dim,
    }
    config = AutoConfig.for_model(
        kind,
        num_hidden_layers=preset.num_layers,
        **heads,
        **{"tie_word_embeddings": False, **sizes},
    )
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)
    assert preset.num_parameters == sum(p.numel() for p in built.parameters())
    assert (
        preset.cache_bytes_per_token
        == 2 * preset.num_layers * preset.num_kv_heads * preset.head_dim * 2
    )
    if preset.num_experts > 1:
        experts = sum(p.numel() for key, p in built.named_parameters() if ".experts." in key)
        assert experts == preset.num_experts * preset.expert_parameters
        assert preset.active_parameters == pytest.approx(3.3e9, rel=0.02)
    else:
        assert preset.active_parameters == preset.num_parameters


def test_every_constant_has_a_source() -> None:
    assert all(card.source for card in CARDS.values()) and all(
        "config.json" in model.source for model in MODELS.values()
    )
    assert all(card.name == key for key, card in CARDS.items()) and all(
        model.name == key for key, model in MODELS.items()
    )


def test_what_no_data_sheet_confirmed_says_so() -> None:
    unconfirmed = {name for name, card in CARDS.items() if card.source.startswith("unconfirmed: ")}
    assert unconfirmed == {"H200-SXM", "L4", "RTX-3090"}
