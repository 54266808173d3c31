"""The three tests of lab 14. On failure they say what the numbers point to."""

from __future__ import annotations

import math
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

# After token 0 the two laws overlap by 0.6, after tokens 1 and 2 by 0.5.
TARGET = np.array([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.1, 0.7, 0.2]])
DRAFTER = np.array([[0.2, 0.5, 0.3], [0.5, 0.3, 0.2], [0.6, 0.2, 0.2]])
P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.3, 0.4])
# The residual of these has two outcomes, 0 and 1.
MANY_P, MANY_Q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])


def two_tokens(lab: SimpleNamespace, rng: np.random.Generator) -> tuple[int, int]:
    """Rounds of two drafts from prefix (0,) until two tokens are out."""
    out: list[int] = []
    while len(out) < 2:
        tokens = lab.speculative_step(
            lambda x: TARGET[x[-1]], lambda x: DRAFTER[x[-1]], (0, *out), 2, rng
        )
        check_shape(tokens, 2)
        out += tokens
    return out[0], out[1]


def check_shape(tokens: object, k: int) -> None:
    """A round returns a list of 1 to k + 1 integers."""
    assert isinstance(tokens, list), (
        f"speculative_step must return a list of token ids, it returned {type(tokens).__name__}"
    )
    assert 1 <= len(tokens) <= k + 1, (
        f"a round of {k} drafts emits 1 to {k + 1} tokens, yours emitted {len(tokens)}: {tokens}"
    )


def check_one_generator(lab: SimpleNamespace, diagnosis: ModuleType) -> None:
    """Drafts, replacement and bonus have several outcomes each. A round in which just one of them,
    or the coin, is drawn elsewhere repeats with a chance of 0.77 at most, a hundred of them with
    1e-11."""
    diagnosis.check_repeats(
        lambda rng: lab.speculative_step(lambda prefix: MANY_P, lambda prefix: MANY_Q, (), 2, rng)
    )


def test_output_distribution_is_exactly_the_target(
    lab: SimpleNamespace, diagnosis: ModuleType
) -> None:
    """Of 500,000 exact samplers none came out at 0.015 or above; the mildest fault in the table is
    at 0.166."""
    check_one_generator(lab, diagnosis)
    rng, counts, runs = np.random.default_rng(0), np.zeros((3, 3)), 30_000
    for _ in range(runs):
        counts[two_tokens(lab, rng)] += 1
    distance = diagnosis.tv(counts / runs, TARGET[0][:, None] * TARGET)
    if distance >= 0.015:
        pytest.fail(
            (
                f"TV to the target is {distance:.3f}, it must be below 0.015. Most likely: "
                f"{diagnosis.hint_for_law(counts / runs)}"
            ),
            pytrace=False,
        )


def test_tokens_per_step_matches_theory(lab: SimpleNamespace, diagnosis: ModuleType) -> None:
    """Laws that ignore the prefix, so acceptance is independent: 20,000 rounds have a standard
    error of 0.011, 2% is six."""
    alpha = lab.acceptance_rate(P, Q)
    assert alpha == pytest.approx(0.8), (
        f"acceptance_rate of p = {P} and q = {Q} is the sum of min(p, q) = 0.8, you got {alpha}"
    )
    theory = lab.expected_tokens(alpha, 4)
    assert theory == pytest.approx(3.3616), (
        f"expected_tokens(0.8, 4) is 1 + 0.8 + ... + 0.8^4 = 3.3616, you got {theory}"
    )
    rng, lengths = np.random.default_rng(1), []
    for _ in range(20_000):
        tokens = lab.speculative_step(lambda prefix: P, lambda prefix: Q, (), 4, rng)
        check_shape(tokens, 4)
        lengths.append(len(tokens))
    mean = float(np.mean(lengths))
    if abs(mean / theory - 1) >= 0.02:
        pytest.fail(
            f"rounds emit {mean:.3f} tokens on average, theory says {theory:.4f} within "
            "2%. Most likely: "
            f"{diagnosis.hint_for_mean(mean)}",
            pytrace=False,
        )


def tokens(lab: SimpleNamespace, diagnosis: ModuleType, alpha: float, k: int) -> float:
    """The learner's `expected_tokens`; a division by zero in it fails in a sentence."""
    try:
        value: float = lab.expected_tokens(alpha, k)
    except (ZeroDivisionError, RuntimeWarning):
        value = math.nan
    if value != value:
        pytest.fail(
            f"expected_tokens({alpha}, {k}): {diagnosis.hint_for_division(alpha, k)}", pytrace=False
        )
    return value


def test_formulas(lab: SimpleNamespace, diagnosis: ModuleType) -> None:
    none, all_five = tokens(lab, diagnosis, 0.0, 5), tokens(lab, diagnosis, 1.0, 5)
    assert none == 1.0, (
        f"with alpha 0 a round emits the replacement alone: exactly 1, you got {none}"
    )
    assert all_five == 6.0, (
        "with alpha 1 a round emits all drafts and the bonus: exactly k + 1 = 6, you "
        f"got {all_five}"
    )
    assert lab.expected_tokens(0.8, 4) == pytest.approx(3.3616)
    speedup = lab.expected_speedup(0.8, 4, 0.05)
    assert speedup == pytest.approx(3.3616 / 1.2), (
        f"a round of 4 drafts at c = 0.05 costs 1.2 target passes: 2.80, not {speedup}"
    )
