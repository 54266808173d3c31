"""Prompts, and one call of `generate` made by transformers and by us, for the tests of
draftproof.hf."""

from __future__ import annotations

from typing import Any

import torch

import draftproof

END, PAD = 7, 0


def prompts(*lengths: int, seed: int = 3) -> dict[str, torch.Tensor]:
    """A left-padded batch of random prompts of these lengths, repetitive enough for prompt
    lookup."""
    chosen = torch.Generator().manual_seed(seed)
    width = max(lengths)
    ids = torch.full((len(lengths), width), PAD)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, width - length :] = torch.randint(1, 12, (length,), generator=chosen)
        mask[row, width - length :] = 1
    return {"input_ids": ids, "attention_mask": mask}


def both(
    model: Any, inputs: dict[str, torch.Tensor], drafter: Any = "ngram", **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(transformers' own, ours)."""
    ours = model.generate(
        **inputs, custom_generate=draftproof.hf.generate, drafter=drafter, **options
    )
    return model.generate(**inputs, **options), ours
