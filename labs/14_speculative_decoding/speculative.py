"""Lab 14, your file: one round of speculative sampling and the arithmetic of its speed.

Read README.md, then replace each `raise` below. `pytest labs/14_speculative_decoding` runs the
tests on this file.

A model is a plain function: it takes the prefix, a tuple of token ids, and returns the law of the
next token, a NumPy vector that sums to 1. `p_fn` is the target, `q_fn` the drafter. `rng` is a
`numpy.random.Generator`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LawFunction = Callable[[tuple[int, ...]], np.ndarray]


def speculative_step(
    p_fn: LawFunction, q_fn: LawFunction, prefix: tuple[int, ...], k: int, rng: np.random.Generator
) -> list[int]:
    """Play one round after `prefix` and return the 1 to k + 1 tokens it emits.

    1. Draft k tokens one after another from `q_fn`. Keep the whole law of each: the ratio and the
       residual need it.
    2. Go through the drafts from the left. For draft i, take the target's law after `prefix` and
       the drafts BEFORE i. Accept with probability min(1, p/q) of the drafted token.
    3. At the first rejection, draw a replacement from the normalised positive part of p - q, and
       return.
    4. If nothing was rejected, draw one more token, the bonus, from the target's law after all
       drafts.

    Draw every random number from `rng`: `rng.choice(len(law), p=law)` and `rng.random()`.
    """
    raise NotImplementedError(
        "speculative_step is still to be written: README.md, part 2, and its docstring say how"
    )


def acceptance_rate(p: np.ndarray, q: np.ndarray) -> float:
    """The chance that a draft from law q is accepted against law p (README.md, part 3)."""
    raise NotImplementedError(
        "acceptance_rate is still to be written: README.md, part 3, has the sum"
    )


def expected_tokens(alpha: float, k: int) -> float:
    """Mean tokens of a round of k drafts that are each accepted with chance alpha (README.md, part
    4).

    The closed form is 0/0 at alpha = 1. What does a round emit there?"""
    raise NotImplementedError(
        "expected_tokens is still to be written: README.md, part 4; mind alpha = 1"
    )


def expected_speedup(alpha: float, k: int, cost_ratio: float) -> float:
    """Time of plain decoding per token over time of speculative decoding per token (README.md, part
    4).

    cost_ratio: time of a draft step over time of a target pass."""
    raise NotImplementedError(
        "expected_speedup is still to be written: README.md, part 4: tokens of a round "
        "over its cost"
    )
