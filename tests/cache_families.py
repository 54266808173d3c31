"""Tiny random models of every kind of layer cache, two to four layers each, with windows of 8 and
chunks of 8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from tiny import SHAPE, VOCAB, gpt2, llama, mistral

WINDOW = 8
MIXED = ["sliding_attention", "full_attention"]
EXPERTS: dict[str, Any] = dict(num_experts_per_tok=2, moe_intermediate_size=32)


def build(name: str, dtype: torch.dtype, seed: int, **changes: Any) -> Any:
    """A model of transformers' class family `name` on `tiny.SHAPE`."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}TextConfig", None) or getattr(
        transformers, f"{name}Config"
    )
    module = getattr(transformers, f"{name}ForCausalLM")(config(**{**SHAPE, **changes}))
    if getattr(module.config, "num_experts", None) or getattr(
        module.config, "num_local_experts", None
    ):
        module.set_experts_implementation("eager")  # the others have no float64
    return module.to(dtype).eval()


def gemma3(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    return build(
        "Gemma3",
        dtype,
        seed,
        **{"sliding_window": WINDOW, "layer_types": MIXED, "head_dim": 8, **changes},
    )


def mixtral(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    return build(
        "Mixtral", dtype, seed, **{"num_local_experts": 4, "sliding_window": None, **changes}
    )


def mixtral_window(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    return mixtral(dtype, seed, **{"sliding_window": WINDOW, **changes})


def qwen3_moe(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    return build("Qwen3Moe", dtype, seed, **{"num_experts": 4, "head_dim": 8, **EXPERTS, **changes})


def llama4(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    shape = {
        "num_local_experts": 2,
        "attention_chunk_size": WINDOW,
        "head_dim": 8,
        "intermediate_size_mlp": 64,
    }
    layers = {"layer_types": ["chunked_attention", "full_attention"], "no_rope_layers": [1, 0]}
    return build("Llama4", dtype, seed, **{**shape, **layers, **changes})


def deepseek_v3(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    """Multi-head latent attention: keys and values of different widths."""
    ranks = {
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 6,
    }
    experts = {
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
        "num_key_value_heads": 4,
        "first_k_dense_replace": 1,
    }
    return build("DeepseekV3", dtype, seed, **{**ranks, **experts, **EXPERTS, **changes})


def mamba(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "state_size": 4,
        "initializer_range": 0.3,
    }
    torch.manual_seed(seed)
    config = transformers.MambaConfig(**{**shape, **ends, **changes})
    return transformers.MambaForCausalLM(config).to(dtype).eval()


def mamba2(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "state_size": 4,
        "initializer_range": 0.3,
    }
    heads = {"num_heads": 4, "head_dim": 16, "n_groups": 2, "chunk_size": 8}
    torch.manual_seed(seed)
    config = transformers.Mamba2Config(**{**shape, **heads, **ends, **changes})
    return transformers.Mamba2ForCausalLM(config).to(dtype).eval()


def jamba(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    shape = {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "num_experts": 2,
        "mamba_d_state": 4,
        "num_hidden_layers": 3,
    }
    return build("Jamba", dtype, seed, **{**shape, **changes})


def qwen3_next(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    linear = {
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    shape = {
        "num_experts": 4,
        "head_dim": 8,
        "shared_expert_intermediate_size": 32,
        "num_hidden_layers": 3,
    }
    types = {"layer_types": ["linear_attention", "linear_attention", "full_attention"]}
    return build("Qwen3Next", dtype, seed, **{**linear, **shape, **types, **EXPERTS, **changes})


def lfm2(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    shape = {
        "layer_types": ["conv", "full_attention", "conv"],
        "num_hidden_layers": 3,
        "block_auto_adjust_ff_dim": False,
    }
    return build("Lfm2", dtype, seed, **{**shape, **changes})


def falcon_h1(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    """Every layer has both attention and a state."""
    shape = {
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_state": 4,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 8,
    }
    return build("FalconH1", dtype, seed, **{**shape, **changes})


def bamba(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    shape = {
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 4,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 8,
    }
    return build("Bamba", dtype, seed, **{**shape, "attn_layer_indices": [1], **changes})


def doge(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    """Attention whose mask is made anew in every layer, from the values: given ours, it adds to
    it."""
    module = build("Doge", dtype, seed, **{"head_dim": 8, "sliding_window": None, **changes})
    with torch.no_grad():
        for layer in module.model.layers:
            layer.self_attn.A.normal_()
    return module


def mpt(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    """Biased by where keys lie in the cache, and told no positions."""
    shape = {
        "vocab_size": VOCAB,
        "d_model": 32,
        "n_heads": 4,
        "n_layers": 2,
        "expansion_ratio": 2,
        "max_seq_len": 128,
    }
    torch.manual_seed(seed)
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    module = transformers.MptForCausalLM(
        transformers.MptConfig(**{**shape, **ends, "initializer_range": 0.3, **changes})
    )
    return module.to(dtype).eval()


def falcon(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    """Attends by code of its own, which knows `sdpa` by name."""
    return build("Falcon", dtype, seed, **{"ffn_hidden_size": 64, **changes})


def zamba(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    """Two hybrid layers, whose attention shares its weights."""
    shape = {
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
    }
    states = {"mamba_d_state": 4, "n_mamba_heads": 2, "use_mamba_kernels": False}
    return build("Zamba", dtype, seed, **{**shape, **states, **changes})


def zamba2(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    shape = {
        "layers_block_type": ["mamba", "hybrid", "mamba"],
        "num_hidden_layers": 3,
        "num_key_value_heads": 4,
    }
    states = {
        "mamba_d_state": 4,
        "n_mamba_heads": 4,
        "mamba_headdim": 16,
        "mamba_ngroups": 1,
        "use_mamba_kernels": False,
    }
    return build(
        "Zamba2", dtype, seed, **{**shape, **states, "chunk_size": 8, "adapter_rank": 4, **changes}
    )


LATENT: dict[str, Any] = dict(
    q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=6
)
LINEAR: dict[str, Any] = dict(
    num_key_value_heads=4,
    num_hidden_layers=3,
    num_local_experts=4,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    mlp_layer_types=["dense", "sparse", "dense"],
)
"""Latent attention between two layers with a delta rule."""


def kimi_linear(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    heads = {"linear_head_dim": 8, "linear_num_heads": 4, "n_shared_experts": 1}
    return build("KimiLinear", dtype, seed, **{**LATENT, **LINEAR, **heads, **EXPERTS, **changes})


def bailing_hybrid(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    shape = {"n_group": 2, "topk_group": 1, "head_dim": 8, "num_mtp_layers": 0}
    return build(
        "BailingHybrid", dtype, seed, **{**LATENT, **LINEAR, **shape, **EXPERTS, **changes}
    )


def longcat_flash(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    """Each of its layers attends twice, and some of its experts do nothing."""
    shape = {
        "num_layers": 2,
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "head_dim": 4,
        "ffn_hidden_size": 64,
    }
    experts = {
        "n_routed_experts": 4,
        "zero_expert_num": 2,
        "moe_topk": 2,
        "expert_ffn_hidden_size": 32,
    }
    return build("LongcatFlash", dtype, seed, **{**LATENT, **shape, **experts, **changes})


def dbrx(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    shape = {
        "vocab_size": VOCAB,
        "d_model": 32,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 128,
        "initializer_range": 0.3,
    }
    attention = {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}
    experts = {"hidden_size": 32, "ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2}
    torch.manual_seed(seed)
    config = transformers.DbrxConfig(
        **{**shape, "attn_config": attention, "ffn_config": experts, **changes}
    )
    module = transformers.DbrxForCausalLM(config)
    module.set_experts_implementation("eager")
    return module.to(dtype).eval()


def xglm(dtype: torch.dtype, seed: int = 0, **changes: Any) -> Any:
    """Its attention makes a float32 of the lowest float64, which raises: float32 only."""
    shape = {
        "vocab_size": VOCAB,
        "d_model": 32,
        "ffn_dim": 64,
        "num_layers": 2,
        "attention_heads": 4,
        "init_std": 0.3,
    }
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    torch.manual_seed(seed)
    config = transformers.XGLMConfig(
        **{**shape, **ends, "scale_embedding": False, "max_position_embeddings": 128, **changes}
    )
    return transformers.XGLMForCausalLM(config).to(dtype).eval()


FLOAT32 = 2e-5
"""For layers that compute in float32 whatever they are given."""


@dataclass(frozen=True)
class Family:
    """make(dtype, seed, **changes). tolerance: of logits in float64; that of Qwen3-Next is wide
    because transformers' own steps differ from its whole forward by 1e-4 after 40 tokens, in a
    delta rule that runs in float32."""

    make: Callable[..., Any]
    trees: bool = True
    shares: bool = True
    tolerance: float = 1e-9
    window: int | None = None
    dtype: torch.dtype = torch.float64


FAMILIES = {
    "llama": Family(llama),
    "gpt2": Family(gpt2),
    "mistral": Family(mistral, window=WINDOW),
    "gemma3": Family(gemma3, window=WINDOW),
    "mixtral": Family(mixtral),
    "mixtral_window": Family(mixtral_window, window=WINDOW),
    "qwen3_moe": Family(qwen3_moe),
    "llama4": Family(llama4, tolerance=FLOAT32, window=WINDOW),
    "deepseek_v3": Family(deepseek_v3, shares=False, tolerance=FLOAT32),
    "doge": Family(doge, shares=False),
    "mpt": Family(mpt, trees=False, shares=False, tolerance=FLOAT32),
    "falcon": Family(falcon, shares=False),
    "mamba": Family(mamba, trees=False, shares=False, tolerance=FLOAT32),
    "mamba2": Family(mamba2, trees=False, shares=False, tolerance=FLOAT32),
    "jamba": Family(jamba, trees=False, shares=False, tolerance=FLOAT32),
    "qwen3_next": Family(qwen3_next, trees=False, shares=False, tolerance=2e-3),
    "lfm2": Family(lfm2, trees=False, shares=False),
    "falcon_h1": Family(falcon_h1, trees=False, shares=False, tolerance=FLOAT32),
    "bamba": Family(bamba, trees=False, shares=False, tolerance=FLOAT32),
}

RARE = {
    "zamba": Family(zamba, trees=False, shares=False),
    "zamba2": Family(zamba2, trees=False, shares=False),
    "kimi_linear": Family(kimi_linear, trees=False, shares=False),
    "bailing_hybrid": Family(bailing_hybrid, trees=False, shares=False),
    "longcat_flash": Family(longcat_flash, shares=False),
    "dbrx": Family(dbrx),
    "xglm": Family(xglm, shares=False, dtype=torch.float32),
}
"""No kind of layer that the others have not; greedy text alone is compared."""
