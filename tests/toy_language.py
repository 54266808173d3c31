"""A toy language with one sentence from every word: token i is followed by (3 i + 1) mod 61. And a
real Llama that speaks it."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftproof.models.hf import HFModel
from draftproof.train.store import Text

SIZE, WIDTH, LAYERS = 61, 64, 4
PROMPT, ANSWER = 5, 6


def follow(token: int) -> int:
    return (3 * token + 1) % SIZE


def sentence(start: int, length: int) -> list[int]:
    tokens = [start]
    while len(tokens) < length:
        tokens.append(follow(tokens[-1]))
    return tokens


def speaker(gap: float = 12.0) -> HFModel:
    """Embeddings are unit vectors that pass through all layers unchanged; the logit of the right
    next token leads by `gap`."""
    shape: dict[str, Any] = dict(
        vocab_size=SIZE, hidden_size=WIDTH, intermediate_size=32, num_hidden_layers=LAYERS
    )
    heads: dict[str, Any] = dict(
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=128
    )
    ends: dict[str, Any] = dict(
        bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False
    )
    torch.manual_seed(0)
    module = LlamaForCausalLM(LlamaConfig(**shape, **heads, **ends, rms_norm_eps=1e-12)).eval()
    with torch.no_grad():
        module.model.embed_tokens.weight.copy_(torch.eye(SIZE, WIDTH))
        for layer in module.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        module.lm_head.weight.zero_()
        for token in range(SIZE):
            # the last norm scales a unit vector by the root
            module.lm_head.weight[follow(token), token] = gap / WIDTH**0.5
    return HFModel(module, name="speaker", check=False)


def texts(starts: range = range(SIZE)) -> list[Text]:
    """One text from each start: a prompt of 5 tokens and an answer of 6."""
    return [
        Text(f"{start:016x}", "toy", tuple(sentence(start, PROMPT + ANSWER)), PROMPT)
        for start in starts
    ]
