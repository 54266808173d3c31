"""Stretch, reference: softmax regression on the state, and one position of the accept rule."""

from __future__ import annotations

import numpy as np

STEPS, RATE, MOMENTUM = 120, 1.0, 0.9


def train_head(states: np.ndarray, tokens: np.ndarray, vocab: int) -> np.ndarray:
    """Gradient descent with momentum on the mean cross-entropy."""
    inputs = np.hstack([states[:-2], np.ones((len(states) - 2, 1))])
    wanted = np.eye(vocab)[tokens[2:]]
    weights = np.zeros((inputs.shape[1], vocab))
    velocity = np.zeros_like(weights)
    for _ in range(STEPS):
        logits = inputs @ weights
        masses = np.exp(logits - logits.max(axis=1, keepdims=True))
        laws = masses / masses.sum(axis=1, keepdims=True)
        velocity = MOMENTUM * velocity - RATE * inputs.T @ (laws - wanted) / len(inputs)
        weights += velocity
    return weights


def head_law(weights: np.ndarray, state: np.ndarray) -> np.ndarray:
    """softmax([state, 1] @ weights)."""
    logits = np.append(state, 1.0) @ weights
    masses = np.exp(logits - logits.max())
    return masses / masses.sum()


def guess_and_verify(
    target_law: np.ndarray, guess_law: np.ndarray, rng: np.random.Generator
) -> tuple[int, bool]:
    """Accept with min(1, p/q), else draw from the residual."""
    draft = int(rng.choice(len(guess_law), p=guess_law))
    if rng.random() < min(1.0, target_law[draft] / guess_law[draft]):
        return draft, True
    residual = np.maximum(target_law - guess_law, 0.0)
    left = residual / residual.sum() if residual.sum() > 0 else target_law
    return int(rng.choice(len(left), p=left)), False
