"""Stretch: draft without a model. Text that repeats itself (code edits, quotes, tables) is its own
best drafter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LawFunction = Callable[[tuple[int, ...]], np.ndarray]


def prompt_lookup(context: tuple[int, ...], k: int, max_ngram: int = 3) -> list[int]:
    """Up to k tokens that followed the last earlier occurrence of the context's last n tokens.

    Try n = max_ngram first, then shorter ones down to 1. The occurrence must end before the
    context's last token, so that something follows it. No occurrence: an empty list."""
    raise NotImplementedError(
        "prompt_lookup is still to be written: compare the context's tail with every earlier window"
    )


def lookup_step(
    p_fn: LawFunction, context: tuple[int, ...], k: int, rng: np.random.Generator
) -> list[int]:
    """One round: verify what `prompt_lookup` copied.

    A copied token was drawn from a one-hot law: what are the acceptance probability and the
    residual then? Without a draft the round is one plain token."""
    raise NotImplementedError(
        "lookup_step is still to be written: put a one-hot q into the rule and simplify"
    )
