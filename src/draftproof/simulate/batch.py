"""Where speculation stops paying as the batch grows: a roofline model of a decoding step.

A pass over s tokens of each of b sequences with n tokens of context takes, for the linear layers
and for attention, memory traffic or arithmetic, whichever is slower, and a fixed overhead:
    max(weights / bandwidth, 2 active b s / flops)
    + max(b n cache_per_token / bandwidth, 4 layers heads head_dim b n s / flops) + overhead.
All weights are taken as read; of a mixture of experts only those of the distinct experts that b s
tokens reach under uniform routing. A model, not a measurement: it has no kernels, no scheduler and
no peak that is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from draftproof.core.formulas import (
    LONGEST_DRAFT,
    Number,
    best_draft_length,
    checked_length,
    expected_speedup,
    expected_tokens,
)
from draftproof.errors import UsageError
from draftproof.simulate.presets import Card, ModelShape

OVERHEAD_SECONDS = 1e-4
"""Fixed cost of a forward pass, target or draft: launching a captured graph, sampling. Neither
measured nor published: 0.1 ms was chosen because with it the model gives known speedups
(Llama-3.1-8B with a 1.2B draft on an H100, alpha 0.8, 1k of context: 2x at batch 1, 1.25x at 256).
It matters at batch 1 only: 2.08x without it, 1.74x with 0.5 ms."""


def distinct_experts(num_experts: int, experts_per_token: int, num_tokens: ArrayLike) -> Number:
    """How many of E experts t tokens reach when each picks k uniformly: E (1 - (1 - k/E)^t)."""
    return (
        num_experts
        * (1 - (1 - experts_per_token / num_experts) ** np.asarray(num_tokens, dtype=np.float64))[
            ()
        ]
    )


def pass_seconds(
    model: ModelShape,
    card: Card,
    batch: ArrayLike,
    context: ArrayLike,
    tokens: ArrayLike,
    overhead_seconds: float = OVERHEAD_SECONDS,
) -> Number:
    """Time of one forward pass over `tokens` of each of `batch` sequences that hold `context`
    tokens; arguments broadcast."""
    b, n, s = (
        _at_least_one(name, x)
        for name, x in (("batch", batch), ("context", context), ("tokens", tokens))
    )
    reached = distinct_experts(model.num_experts, model.experts_per_token, b * s)
    weights = (
        model.weight_bytes
        - (model.num_experts - reached) * model.expert_parameters * model.bytes_per_weight
    )
    linear = np.maximum(
        weights / card.memory_bandwidth, 2 * model.active_parameters * b * s / card.peak_flops
    )
    scores = 4 * model.num_layers * model.num_heads * model.head_dim * b * n * s
    attention = np.maximum(
        b * n * model.cache_bytes_per_token / card.memory_bandwidth, scores / card.peak_flops
    )
    return (linear + attention + overhead_seconds)[()]


@dataclass(frozen=True)
class BatchModel:
    """A target and a draft model on one card. draft_context: the draft reads at most this many
    tokens of cache (None: all)."""

    card: Card
    target: ModelShape
    draft: ModelShape
    overhead_seconds: float = OVERHEAD_SECONDS
    draft_context: int | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.overhead_seconds) and self.overhead_seconds >= 0):
            raise UsageError(f"overhead_seconds must be at least 0, got {self.overhead_seconds}")

    def verify_ratio(self, batch: ArrayLike, context: ArrayLike, tokens: ArrayLike) -> Number:
        """T(tokens) / T(1) of the target at this batch."""
        times = [
            pass_seconds(self.target, self.card, batch, context, n, self.overhead_seconds)
            for n in (tokens, 1)
        ]
        return times[0] / times[1]

    def cost_ratio(self, batch: ArrayLike, context: ArrayLike) -> Number:
        """Draft step over target step at this batch."""
        seen = context if self.draft_context is None else np.minimum(context, self.draft_context)
        draft = pass_seconds(self.draft, self.card, batch, seen, 1, self.overhead_seconds)
        return draft / pass_seconds(
            self.target, self.card, batch, context, 1, self.overhead_seconds
        )

    def memory_bytes(self, batch: int, context: int) -> float:
        """Weights of both models and the caches of the batch; one set of weights when the target
        drafts for itself."""
        seen = context if self.draft_context is None else min(context, self.draft_context)
        drafting = (
            0.0
            if self.draft == self.target
            else self.draft.weight_bytes + batch * seen * self.draft.cache_bytes_per_token
        )
        return (
            self.target.weight_bytes
            + batch * context * self.target.cache_bytes_per_token
            + drafting
        )

    def best_length(
        self, alpha: float, batch: int, context: int, max_length: int = LONGEST_DRAFT
    ) -> int:
        """The draft length with the highest speedup; 0 when plain decoding is faster."""
        cost = self.cost_ratio(batch, context)
        return int(
            best_draft_length(
                alpha, cost, max_length, lambda tokens: self.verify_ratio(batch, context, tokens)
            )
        )

    def row(
        self, alpha: float, batch: int, context: int, length: int | None = None
    ) -> dict[str, float | bool]:
        """One line of the table, at the best draft length when `length` is None."""
        k = length
        if k is None:
            k = self.best_length(alpha, batch, context)
        checked_length("num_speculative_tokens", k)
        verify, cost = self.verify_ratio(batch, context, k + 1), self.cost_ratio(batch, context)
        memory = self.memory_bytes(batch, context)
        return {
            "alpha": alpha,
            "num_speculative_tokens": k,
            "batch": batch,
            "context": context,
            "tokens_per_round": float(expected_tokens(alpha, k)),
            "verify_ratio": float(verify),
            "cost_ratio": float(cost),
            "speedup": float(expected_speedup(alpha, k, cost, verify)),
            "memory_bytes": memory,
            "fits_card": memory <= self.card.memory,
        }

    def table(
        self,
        alphas: Sequence[float],
        batches: Sequence[int],
        contexts: Sequence[int],
        length: int | None = None,
    ) -> list[dict[str, float | bool]]:
        """`row` for every alpha, context and batch, in that order."""
        return [self.row(a, b, n, length) for a in alphas for n in contexts for b in batches]


def _at_least_one(name: str, values: ArrayLike) -> Number:
    array = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(array)) or np.any(array < 1):
        raise UsageError(f"{name} must be at least 1, got {values!r}")
    return array
