"""Write a tiny Llama as a GGUF file, as llama.cpp's converter would: its names, its rotary layout,
its tokenizer fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

CHAT_TEMPLATE = "{% for m in messages %}<1>{{ m.content }}<2>{% endfor %}"

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OTHER_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def write_gguf(file: Path, module: Any) -> None:
    """`module`, a LlamaForCausalLM, at `file` in float32, its output layer always written as a
    tensor of its own."""
    writer = gguf.GGUFWriter(str(file), "llama")
    _write_shape(writer, module.config)
    _write_tokenizer(writer, module.config.vocab_size)
    for name, tensor in module.state_dict().items():
        writer.add_tensor(
            *_renamed(name.removesuffix(".weight"), tensor.float().numpy(), module.config)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_shape(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: gguf.GGUFWriter, vocab_size: int) -> None:
    """Three special tokens, then a..z, aa..zz, aaa..."""
    letters = [chr(97 + i % 26) * (1 + i // 26) for i in range(vocab_size - 3)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["<0>", "<1>", "<2>", *letters])
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * len(letters))
    writer.add_token_merges(["a a", "b b"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)


def _renamed(name: str, values: np.ndarray, config: Any) -> tuple[str, np.ndarray]:
    if not name.startswith("model.layers."):
        return f"{_OTHER_NAMES[name]}.weight", np.ascontiguousarray(values)
    _, _, index, part = name.split(".", 3)
    heads = {
        "self_attn.q_proj": config.num_attention_heads,
        "self_attn.k_proj": config.num_key_value_heads,
    }.get(part)
    if heads is not None:
        halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
        values = halves.swapaxes(1, 2).reshape(values.shape)
    return f"blk.{index}.{_LAYER_NAMES[part]}.weight", np.ascontiguousarray(values)
