"""Stretch: a head that drafts from the target's own hidden state (one Medusa head, in miniature).

The target has read token t and its state is known. Its own output gives token t + 1. A head on the
same state guesses token t + 2 without having seen t + 1: that is what makes it cheap, and what caps
its acceptance.
"""

from __future__ import annotations

import numpy as np


def train_head(states: np.ndarray, tokens: np.ndarray, vocab: int) -> np.ndarray:
    """Weights [width + 1, vocab] (the last row is the bias) of a softmax head that predicts token t
    + 2 from state t.

    states: [length, width], states[t] is the target's state after reading tokens[t]. Cross-entropy
    and plain gradient descent are enough: the loss is convex. Mind the shift by two."""
    raise NotImplementedError(
        "train_head is still to be written: pair states[t] with tokens[t + 2] and descend"
    )


def head_law(weights: np.ndarray, state: np.ndarray) -> np.ndarray:
    """The head's law [vocab] of the token after next, from one state [width]."""
    raise NotImplementedError(
        "head_law is still to be written: softmax of the state, with a 1 appended, times "
        "the weights"
    )


def guess_and_verify(
    target_law: np.ndarray, guess_law: np.ndarray, rng: np.random.Generator
) -> tuple[int, bool]:
    """Draft one token from `guess_law` and apply the lab's accept rule against `target_law`:
    (token, was it accepted).

    The token's law must be `target_law`, however bad the guess."""
    raise NotImplementedError(
        "guess_and_verify is still to be written: the accept rule of the lab, for a single draft"
    )
