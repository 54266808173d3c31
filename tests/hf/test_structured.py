"""`model.generate(custom_generate=draftproof.hf.generate, structured_outputs=…)`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import draftproof
from draftproof.errors import UsageError
from hf_calls import prompts

CHOICE = {"choice": ["aab", "ba"]}


class Letters:
    """A tokenizer as llguidance takes one: id 1 is a, id 2 is b, the rest are of no use."""

    bos_token_id = None

    def __init__(self, size: int, eos: int) -> None:
        self.eos_token_id = eos
        self.tokens = [b"<%d>" % token for token in range(size)]
        self.tokens[1], self.tokens[2] = b"a", b"b"

    def __call__(self, text: Any) -> list[int]:
        return [
            {"a": 1, "b": 2}[letter]
            for letter in (text.decode() if isinstance(text, bytes) else text)
        ]


@pytest.mark.parametrize("drafter", ["ngram", "none"])
def test_every_row_keeps_to_the_grammar(model: Any, drafter: str) -> None:
    torch.manual_seed(0)
    eos = 3
    letters = Letters(model.config.vocab_size, eos)
    asked = dict(
        do_sample=True, num_return_sequences=3, max_new_tokens=6, eos_token_id=eos, pad_token_id=eos
    )
    inputs = prompts(3)
    found = model.generate(
        **inputs,
        **asked,
        custom_generate=draftproof.hf.generate,
        drafter=drafter,
        structured_outputs=CHOICE,
        target_tokenizer=letters,
    )
    texts = [
        [token for token in row if token != eos]
        for row in found[:, inputs["input_ids"].shape[1] :].tolist()
    ]
    assert len(texts) >= 3 and all(text in ([1, 1, 2], [2, 1]) for text in texts)


def test_it_needs_the_tokenizer(model: Any) -> None:
    with pytest.raises(UsageError, match="structured_outputs needs target_tokenizer"):
        model.generate(
            **prompts(3),
            max_new_tokens=4,
            custom_generate=draftproof.hf.generate,
            structured_outputs=CHOICE,
        )
