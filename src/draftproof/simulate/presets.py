"""Cards and models for the batch model, every constant with where it comes from.

Cards: peak dense 16-bit matrix throughput (float32 accumulation, no sparsity) and memory bandwidth
of the maker's data sheet; nobody reaches either. A source that begins with "unconfirmed" says what
the figure rests on instead of a data sheet that was read. The fixed time of a pass that goes with
them, in `simulate/batch.py`, was chosen to fit known speedups.

Models: shapes from the `config.json` in the model's repository on the Hugging Face hub; the
parameter counts follow from the shapes and are tested against transformers' own classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from draftproof.errors import UsageError

Item = TypeVar("Item")


@dataclass(frozen=True)
class Card:
    """memory_bandwidth: bytes a second. peak_flops: multiply and add counted as two. memory:
    bytes."""

    name: str
    memory_bandwidth: float
    peak_flops: float
    memory: float
    source: str


@dataclass(frozen=True)
class ModelShape:
    """What a forward pass costs. Sizes are counts; weights and cache have `bytes_per_weight` and
    `bytes_per_cache_entry`.

    A mixture of experts has `num_experts` in each layer, routes a token to `experts_per_token` of
    them, and `expert_parameters` counts one expert over all layers; the rest of `num_parameters`
    every token reads."""

    name: str
    num_parameters: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    source: str
    num_experts: int = 1
    experts_per_token: int = 1
    expert_parameters: int = 0
    bytes_per_weight: float = 2
    bytes_per_cache_entry: float = 2

    @property
    def active_parameters(self) -> int:
        """Parameters one token is multiplied with."""
        return (
            self.num_parameters
            - (self.num_experts - self.experts_per_token) * self.expert_parameters
        )

    @property
    def weight_bytes(self) -> float:
        return self.num_parameters * self.bytes_per_weight

    @property
    def cache_bytes_per_token(self) -> float:
        """Keys and values of one token over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.bytes_per_cache_entry


CARDS = {
    card.name: card
    for card in (
        Card(
            "H200-SXM",
            4.8e12,
            989.4e12,
            141e9,
            (
                "unconfirmed: one third-party table (4.8 TB/s, 141 GB, the H100's 1,979 "
                "TFLOPS BF16 with sparsity)"
            ),
        ),
        Card(
            "H100-SXM",
            3.35e12,
            989.4e12,
            80e9,
            "NVIDIA H100 data sheet: 3.35 TB/s, 1,979 TFLOPS BF16 with sparsity",
        ),
        Card(
            "MI300X",
            5.3e12,
            1307.4e12,
            192e9,
            "AMD Instinct MI300X data sheet: 5.3 TB/s, 1,307.4 TFLOPS BF16",
        ),
        Card(
            "A100-SXM-80GB",
            2.039e12,
            312e12,
            80e9,
            "NVIDIA A100 data sheet: 2,039 GB/s, 312 TFLOPS BF16",
        ),
        Card("L40S", 864e9, 362e12, 48e9, "NVIDIA L40S data sheet: 864 GB/s, 362 TFLOPS BF16"),
        Card(
            "L4",
            300e9,
            121e12,
            24e9,
            (
                "unconfirmed: 242 TFLOPS BF16 with sparsity and 300 GB/s recalled; cores "
                "times clock give 125 without"
            ),
        ),
        Card("T4", 320e9, 65e12, 16e9, "NVIDIA T4 data sheet: 320 GB/s, 65 TFLOPS FP16 (no BF16)"),
        Card(
            "RTX-4090",
            1008e9,
            165.2e12,
            24e9,
            "NVIDIA Ada whitepaper: 1,008 GB/s, 165.2 TFLOPS FP16, FP32 accumulate",
        ),
        Card(
            "RTX-3090",
            936e9,
            71e12,
            24e9,
            (
                "unconfirmed: 936 GB/s, 71 TFLOPS FP16 with FP32 accumulate, recalled from "
                "the GA102 whitepaper and not looked up"
            ),
        ),
    )
}

MODELS = {
    model.name: model
    for model in (
        ModelShape(
            "Llama-3.1-70B", 70_553_706_496, 80, 64, 8, 128, "meta-llama/Llama-3.1-70B config.json"
        ),
        ModelShape(
            "Llama-3.1-8B", 8_030_261_248, 32, 32, 8, 128, "meta-llama/Llama-3.1-8B config.json"
        ),
        ModelShape(
            "Llama-3.2-1B", 1_235_814_400, 16, 32, 8, 64, "meta-llama/Llama-3.2-1B config.json"
        ),
        ModelShape(
            "Qwen2.5-7B", 7_615_616_512, 28, 28, 4, 128, "Qwen/Qwen2.5-7B-Instruct config.json"
        ),
        ModelShape(
            "Qwen2.5-1.5B", 1_543_714_304, 28, 12, 2, 128, "Qwen/Qwen2.5-1.5B-Instruct config.json"
        ),
        ModelShape(
            "Qwen2.5-0.5B", 494_032_768, 24, 14, 2, 64, "Qwen/Qwen2.5-0.5B-Instruct config.json"
        ),
        ModelShape(
            "Qwen3-30B-A3B",
            30_532_122_624,
            48,
            32,
            4,
            128,
            "Qwen/Qwen3-30B-A3B config.json",
            num_experts=128,
            experts_per_token=8,
            expert_parameters=48 * 3 * 2048 * 768,
        ),
        ModelShape("Qwen3-0.6B", 596_049_920, 28, 16, 8, 128, "Qwen/Qwen3-0.6B config.json"),
        ModelShape(
            "SmolLM2-135M",
            134_515_008,
            30,
            9,
            3,
            64,
            "HuggingFaceTB/SmolLM2-135M-Instruct config.json",
        ),
    )
}


def card(name: str) -> Card:
    """The preset card of that name."""
    return _find("card", CARDS, name)


def model(name: str) -> ModelShape:
    """The preset model of that name."""
    return _find("model", MODELS, name)


def _find(kind: str, presets: Mapping[str, Item], name: str) -> Item:
    if name not in presets:
        raise UsageError(f"there is no preset {kind} {name!r}; choose from {', '.join(presets)}")
    return presets[name]
