"""What a wrong distribution or a wrong mean most likely comes from: known faults and what each of
them produces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

FAULTS = {
    "you draw the replacement from p; draw it from the normalised positive part of p - q": (
        (0.1936, 0.1848, 0.0616),
        (0.126, 0.063, 0.231),
        (0.021, 0.077, 0.042),
    ),
    (
        "you go on verifying after a rejection; the later drafts belong to a prefix that was "
        "not emitted, so return"
    ): (
        (0.18, 0.22, 0.2),
        (0.06, 0.03, 0.21),
        (0.01, 0.07, 0.02),
    ),
    (
        "the drafts come out as they are: nothing is verified, or the ratio is upside down "
        "(it is p over q)"
    ): (
        (0.04, 0.1, 0.06),
        (0.25, 0.15, 0.1),
        (0.18, 0.06, 0.06),
    ),
    (
        "every token is the target's favourite; comparing with the argmax is the rule for "
        "greedy decoding only"
    ): (
        (1.0, 0.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, 0.0, 0.0),
    ),
    (
        "the target's law is taken one position too late; for draft i the prefix ends with "
        "the drafts BEFORE i"
    ): (
        (0.04, 0.04, 0.12),
        (0.1, 0.02, 0.08),
        (0.36, 0.06, 0.18),
    ),
}
"""Hint -> the exact law of two tokens after prefix (0,) of the test's chain, rounds of two
drafts."""

CLOSE = 0.02


def tv(law: np.ndarray, other: np.ndarray) -> float:
    """Total variation distance."""
    return float(np.abs(law - other).sum() / 2)


def check_repeats(play: Callable[[np.random.Generator], object]) -> None:
    """`play` a hundred times with one generator going through all of them, twice from equal seeds:
    a step that draws from the generator it is given always repeats itself."""
    once, again = (
        [play(rng) for _ in range(100)]
        for rng in (np.random.default_rng(7), np.random.default_rng(7))
    )
    assert once == again, (
        "two runs with equal seeds differ: draw every random number from the rng you are given"
    )


def hint_for_law(empirical: np.ndarray) -> str:
    """The fault whose law is as good as `empirical` [3, 3], or general advice."""
    hint, law = min(FAULTS.items(), key=lambda fault: tv(empirical, np.array(fault[1])))
    if tv(empirical, np.array(law)) < CLOSE:
        return hint
    return (
        "no fault this file knows; follow one draft by hand and compare every law with part "
        "2 of README.md"
    )


def hint_for_mean(mean: float) -> str:
    """What a mean round length other than 3.3616 points to (alpha 0.8, four drafts)."""
    if abs(mean - 2.952) < 0.06:
        return (
            "the bonus token is missing: when all drafts are accepted, draw one more from "
            "the target"
        )
    if mean > 3.45:
        return "rounds are too long: return at the first rejection, and accept with min(1, p/q)"
    return (
        "rounds are too short: emit the accepted drafts before the replacement, and accept "
        "with min(1, p/q)"
    )


def hint_for_division(alpha: float, k: int) -> str:
    """What a division by zero in `expected_tokens` means."""
    closed_form = "the closed form (1 - alpha^(k+1)) / (1 - alpha)"
    if alpha == 1:
        return (
            f"division by zero: {closed_form} is 0/0 at alpha = 1. The sum it stands "
            "for, 1 + alpha + ... + alpha^k, is k + 1 "
            f"= {k + 1} there: return that before dividing"
        )
    return (
        f"division by zero at alpha = {alpha}, where 1 - alpha is not 0: compare your "
        f"denominator with {closed_form}"
    )
