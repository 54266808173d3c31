"""Tiny random models of several families, built in milliseconds: for faults of cache, position and
mask.

Wide initial weights give clear gaps between logits; `table_model` is a real Llama whose next-token
logits are set by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCAB = 64
SHAPE: dict[str, Any] = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    initializer_range=0.3,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)


def llama(dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**{**SHAPE, **changes})).to(dtype).eval()


def qwen2(dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(Qwen2Config(**{**SHAPE, **changes})).to(dtype).eval()


def qwen3(dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(**{**SHAPE, "head_dim": 8, **changes})).to(dtype).eval()


def mistral(
    dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any
) -> MistralForCausalLM:
    torch.manual_seed(seed)
    return (
        MistralForCausalLM(MistralConfig(**{**SHAPE, "sliding_window": 8, **changes}))
        .to(dtype)
        .eval()
    )


def gpt2(dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> GPT2LMHeadModel:
    """Learned positions, 32 of them, and as many key heads as query heads."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = dict(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=32, initializer_range=0.3
    )
    ends: dict[str, Any] = dict(bos_token_id=None, eos_token_id=None)
    return GPT2LMHeadModel(GPT2Config(**{**shape, **ends, **changes})).to(dtype).eval()


FAMILIES = {"llama": llama, "qwen2": qwen2, "qwen3": qwen3, "gpt2": gpt2}


def table_model(table: torch.Tensor, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    """A one-layer Llama whose logits after token i are row i of `table` [16, 16], whatever came
    before."""
    size = table.shape[0]
    shape: dict[str, Any] = dict(
        SHAPE, vocab_size=size, hidden_size=size, num_hidden_layers=1, rms_norm_eps=1e-12
    )
    module = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=False)).eval()
    with torch.no_grad():
        module.model.embed_tokens.weight.copy_(torch.eye(size))
        module.model.layers[0].self_attn.o_proj.weight.zero_()
        module.model.layers[0].mlp.down_proj.weight.zero_()
        # the norm scales a unit vector by the root of its width
        module.lm_head.weight.copy_(table.T / size**0.5)
    return module.to(dtype)


def fresh_logits(module: Any, tokens: Sequence[int]) -> torch.Tensor:
    """Logits [n, rows] of the model's own forward over `tokens`, without any cache."""
    with torch.no_grad():
        return module(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0]


def word_tokenizer(
    num_tokens: int = VOCAB, swapped: tuple[int, int] | None = None, prefix: str = "w"
) -> PreTrainedTokenizerFast:
    """Words w0, w1, ... are the tokens 0, 1, ...; `swapped` exchanges the ids of two of them."""
    ids = {f"{prefix}{i}": i for i in range(num_tokens)}
    if swapped is not None:
        one, other = (f"{prefix}{i}" for i in swapped)
        ids[one], ids[other] = ids[other], ids[one]
    inner = Tokenizer(models.WordLevel(ids, unk_token=f"{prefix}0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token=f"{prefix}0")
