"""Speculative decoding inside transformers' own call.

    model.generate(**inputs, custom_generate=draftproof.hf.generate, drafter="ngram")

transformers prepares the inputs, the logits processors and the stopping criteria as for its own
decoding and hands them to `generate` here, which returns what transformers would: with greedy
decoding the same tensor.
"""

from __future__ import annotations

from draftproof.hf.generate import SpeculativeOutput, generate

__all__ = ["SpeculativeOutput", "generate"]
