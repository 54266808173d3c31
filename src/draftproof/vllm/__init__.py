"""Drafters that need no hidden states, inside vLLM through its `custom_class` method.

    vllm serve MODEL --speculative-config \
        '{"method": "custom_class", "model": "draftproof.vllm.Suffix", "num_speculative_tokens":
        16}'

vLLM makes one of these classes in its worker and asks it for drafts after every step; it verifies
them by its own rules. """

from __future__ import annotations

from draftproof.vllm.proposer import Auto, NGram, NGramCache, Proposer, Suffix

__all__ = ["Auto", "NGram", "NGramCache", "Proposer", "Suffix"]
