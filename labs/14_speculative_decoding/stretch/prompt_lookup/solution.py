"""Stretch, reference: prompt lookup, verified as one-hot drafts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LawFunction = Callable[[tuple[int, ...]], np.ndarray]


def prompt_lookup(context: tuple[int, ...], k: int, max_ngram: int = 3) -> list[int]:
    """What followed the last earlier occurrence of the longest matching tail."""
    for n in range(min(max_ngram, len(context) - 1), 0, -1):
        tail = context[-n:]
        for start in range(len(context) - n - 1, -1, -1):
            if context[start : start + n] == tail:
                return list(context[start + n : start + n + k])
    return []


def lookup_step(
    p_fn: LawFunction, context: tuple[int, ...], k: int, rng: np.random.Generator
) -> list[int]:
    """Accept a copied token with the target's probability of it; replace it by anything else."""
    drafts = prompt_lookup(context, k)
    for i, token in enumerate(drafts):
        law = p_fn(context + tuple(drafts[:i])).astype(float).copy()
        if rng.random() < law[token]:
            continue
        law[token] = 0.0
        return [*drafts[:i], int(rng.choice(len(law), p=law / law.sum()))]
    law = p_fn(context + tuple(drafts))
    return [*drafts, int(rng.choice(len(law), p=law))]
