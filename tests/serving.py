"""What a server is tried on: a tiny random Llama, a byte-level tokenizer with a chat template, and
drafts for both."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftproof import SpeculativeDecoder
from draftproof.models.hf import HFModel
from tokenizers_in_code import byte_level

TEMPLATE = (
    "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.tool_calls | tojson if "
    "m.tool_calls }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TEXT = "the quick brown fox jumps over the lazy dog. the quick brown fox jumps over"


@cache
def tokenizer() -> Any:
    made = byte_level()
    made.chat_template = TEMPLATE
    return made


def make_model(
    seed: int = 0, layers: int = 2, max_length: int = 512, ends: bool = False
) -> HFModel:
    """ends: whether a text may end by itself."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = dict(
        vocab_size=len(tokenizer()), hidden_size=32, intermediate_size=64, num_hidden_layers=layers
    )
    heads: dict[str, Any] = dict(
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=max_length
    )
    eos = tokenizer().eos_token_id if ends else None
    more: dict[str, Any] = dict(
        bos_token_id=None, eos_token_id=eos, pad_token_id=None, initializer_range=0.3
    )
    return HFModel(
        LlamaForCausalLM(LlamaConfig(**shape, **heads, **more)).eval(), tokenizer(), name="tiny"
    )


def make_decoder(
    method: str | None = "ngram", max_length: int = 512, ends: bool = False, **config: Any
) -> SpeculativeDecoder:
    """A decoder that drafts by `method`; None: by a smaller model."""
    target = make_model(max_length=max_length, ends=ends)
    if method is None:
        return SpeculativeDecoder(
            make_model(1, 1, max_length), target, tokenizer(), speculative_config=config or None
        )
    return SpeculativeDecoder(
        None, target, tokenizer(), speculative_config={"method": method} | config
    )


def events(text: str) -> list[dict[str, Any]]:
    """The objects of a stream of server-sent events, which has to end as OpenAI's do."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
