"""The default model, once pulled: our passes give the text that transformers' own greedy generation
gives."""

from __future__ import annotations

import pytest
import torch

from draftproof.models.hf import HFModel
from draftproof.models.protocol import Step, extend
from draftproof.models.pull import DEFAULT_MODEL, pulled_folder

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not (pulled_folder(DEFAULT_MODEL) / "config.json").is_file(), reason="run: draftproof pull"
    ),
]
NUM_TOKENS = 20


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_greedy_text_equals_transformers_up_to_ties(dtype):
    model = HFModel.from_pretrained(DEFAULT_MODEL, dtype=dtype, device="cpu")
    messages = [{"role": "user", "content": "Name three rivers and say where they flow."}]
    prompt = model.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    limits = dict(
        max_new_tokens=NUM_TOKENS,
        min_new_tokens=NUM_TOKENS,
        do_sample=False,
        pad_token_id=model.eos_token_ids[0],
    )
    ids = torch.tensor([prompt])
    expected = model.module.generate(ids, attention_mask=torch.ones_like(ids), **limits)[
        0, len(prompt) :
    ].tolist()
    session = model.open()
    logits = extend(Step(session, prompt, rows=[len(prompt) - 1])).logits[-1].float()
    for token in expected:
        logits[list(model.eos_token_ids)] = -torch.inf
        gap = float(logits.max() - logits[token])
        assert gap <= (1e-3 if dtype == "float32" else 0.25), (
            "the library chose a token that is no near tie here"
        )
        logits = extend(Step(session, [token])).logits[-1].float()


def test_the_tokenizer_of_the_pulled_model_is_whole():
    model = HFModel.from_pretrained(DEFAULT_MODEL, device="cpu")
    assert model.vocab_size == len(model.tokenizer) == 49152
    assert model.tokenizer.convert_ids_to_tokens(list(model.eos_token_ids)) == ["<|im_end|>"]
    text = "def f(x):\n    return x + 2024  # naïve café ☕\n"
    assert model.tokenizer.decode(model.tokenizer(text).input_ids) == text
    assert "<|im_start|>assistant" in model.tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
