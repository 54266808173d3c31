"""Speculative sampling on the model of `draftproof pull`, with and without its residual, to show what an audit says of each.

    python benchmarks/audits/faulty_texts.py FOLDER        write the draft model there: the target without three layers
    DRAFT=FOLDER PYTHONPATH=benchmarks/audits draftproof audit --black-box faulty_texts:no_residual --draft FOLDER

After a rejection `no_residual` draws from the target's whole law; `residual` from what the draft left of it, as it must.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from draftproof.models.pull import DEFAULT_MODEL, pulled_folder

LENGTH, DRAFTS = 48, 3
LEFT_OUT = (9, 13, 17)


def write_draft(folder: str) -> None:
    whole = AutoModelForCausalLM.from_pretrained(pulled_folder(DEFAULT_MODEL), dtype=torch.bfloat16)
    whole.model.layers = torch.nn.ModuleList(layer for number, layer in enumerate(whole.model.layers) if number not in LEFT_OUT)
    whole.config.num_hidden_layers = len(whole.model.layers)
    whole.save_pretrained(folder)
    AutoTokenizer.from_pretrained(pulled_folder(DEFAULT_MODEL)).save_pretrained(folder)


class Reader:
    """A model and the keys and values of what it read."""

    def __init__(self, folder: Any) -> None:
        self.model, self.cache = _loaded(str(folder)), DynamicCache()

    def laws(self, text: Sequence[int]) -> torch.Tensor:
        """[rows, vocabulary], float64: the laws after every token of the text that had not been read."""
        known = self.cache.get_seq_length()
        with torch.no_grad():
            read = self.model(torch.tensor([list(text[known:])]), past_key_values=self.cache)
        return read.logits[0].double().softmax(-1)

    def forget(self, length: int) -> None:
        surplus = self.cache.get_seq_length() - length
        if surplus > 0:
            self.cache.crop(-surplus)


@cache
def _loaded(folder: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)


def drawn(law: torch.Tensor) -> int:
    return int(torch.multinomial(law, 1))


def decode(prompt: Sequence[int], seed: int, with_residual: bool) -> list[int]:
    torch.manual_seed(seed)
    target, draft, text = Reader(pulled_folder(DEFAULT_MODEL)), Reader(os.environ["DRAFT"]), list(prompt)
    target.laws(text[:-1])
    while len(text) < len(prompt) + LENGTH:
        start, claimed = len(text), []
        for _ in range(DRAFTS):
            claimed.append(draft.laws(text)[-1])
            text.append(drawn(claimed[-1]))
        laws = target.laws(text)[-DRAFTS - 1 :]
        for place, (q, p) in enumerate(zip(claimed, laws, strict=False)):
            token = text[start + place]
            if torch.rand(()) * q[token] >= p[token]:
                left = (p - q).clamp(min=0) if with_residual else p
                text[start + place :] = [drawn(left)]
                break
        else:
            text.append(drawn(laws[-1]))
        target.forget(len(text) - 1)
        draft.forget(len(text) - 1)
    return text[len(prompt) : len(prompt) + LENGTH]


def residual(prompt: Sequence[int], seed: int) -> list[int]:
    return decode(prompt, seed, True)


def no_residual(prompt: Sequence[int], seed: int) -> list[int]:
    return decode(prompt, seed, False)


if __name__ == "__main__":
    write_draft(sys.argv[1])
