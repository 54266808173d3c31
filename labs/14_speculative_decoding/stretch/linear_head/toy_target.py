"""A small recurrent target with a hidden state, so that a head has something to read. Fixed
weights, nothing to download.

After reading token x the state becomes tanh(STATE h + INPUT[x]), and the next token has law
softmax(OUTPUT h)."""

from __future__ import annotations

import numpy as np

VOCAB, WIDTH = 6, 24
_weights = np.random.default_rng(14)
STATE = _weights.standard_normal((WIDTH, WIDTH)) * 0.9 / np.sqrt(WIDTH)
INPUT = _weights.standard_normal((VOCAB, WIDTH))
OUTPUT = _weights.standard_normal((VOCAB, WIDTH)) * 0.6


def softmax(logits: np.ndarray) -> np.ndarray:
    """Laws [..., vocab] from logits."""
    masses = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return masses / masses.sum(axis=-1, keepdims=True)


def read(state: np.ndarray, token: int) -> np.ndarray:
    """The state [width] after one more token."""
    return np.tanh(STATE @ state + INPUT[token])


def next_law(state: np.ndarray) -> np.ndarray:
    """The law [vocab] of the token that follows."""
    return softmax(OUTPUT @ state)


def sample_text(length: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Text of the target itself: tokens [length], and the states [length, width] after reading
    each."""
    tokens, states, state = np.empty(length, dtype=int), np.empty((length, WIDTH)), np.zeros(WIDTH)
    token = 0
    for i in range(length):
        tokens[i], state = token, read(state, token)
        states[i] = state
        token = int(rng.choice(VOCAB, p=next_law(state)))
    return tokens, states
