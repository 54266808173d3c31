"""Adaptive length against every fixed one, on a clock that is simulated and therefore never
late."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

LONGEST, DRAFT_MS, TARGET_MS, TOKENS = 8, 5.0, 50.0, 4000
EASY, HARD, STAY = 0.95, 0.15, 0.98
SEEDS = range(5)


def acceptance_of_tokens(seed: int, drifting: bool) -> np.ndarray:
    """Acceptance rate at every token of a text: easy and hard stretches of 50 tokens on average, or
    0.8 throughout."""
    if not drifting:
        return np.full(TOKENS, 0.8)
    rng = np.random.default_rng(seed)
    return np.where(np.cumsum(rng.random(TOKENS) > STAY) % 2 == 0, EASY, HARD)


def speedup(chooser: object, rates: np.ndarray, seed: int) -> float:
    """Generate the text with `chooser`'s lengths; times wobble by a tenth."""
    rng, done, spent = np.random.default_rng(100 + seed), 0, 0.0
    while done < len(rates):
        k = chooser.choose()  # type: ignore[attr-defined]
        assert isinstance(k, int) and 1 <= k <= LONGEST, (
            f"choose() must return a length from 1 to {LONGEST}, not {k!r}"
        )
        tests = (
            rng.random(k) < rates[done : done + k]
            if done + k <= len(rates)
            else rng.random(k) < rates[-1]
        )
        accepted = int(np.argmin(np.append(tests, False)))
        draft, verify = k * DRAFT_MS * rng.uniform(0.9, 1.1), TARGET_MS * rng.uniform(0.9, 1.1)
        chooser.update(k, accepted, draft / 1e3, verify / 1e3)  # type: ignore[attr-defined]
        done, spent = done + accepted + 1, spent + draft + verify
    return done * TARGET_MS / spent


class Fixed:
    def __init__(self, length: int) -> None:
        self.length = length

    def choose(self) -> int:
        return self.length

    def update(self, *_: object) -> None:
        pass


def best_fixed(drifting: bool) -> float:
    """The highest mean speedup of a length chosen in hindsight."""
    texts = [acceptance_of_tokens(seed, drifting) for seed in SEEDS]
    return max(
        float(
            np.mean(
                [speedup(Fixed(k), text, seed) for seed, text in zip(SEEDS, texts, strict=True)]
            )
        )
        for k in range(1, LONGEST + 1)
    )


def adaptive(lab: SimpleNamespace, drifting: bool) -> float:
    return float(
        np.mean(
            [
                speedup(lab.AdaptiveLength(LONGEST), acceptance_of_tokens(seed, drifting), seed)
                for seed in SEEDS
            ]
        )
    )


def test_on_text_with_easy_and_hard_stretches_it_beats_every_fixed_length(
    lab: SimpleNamespace,
) -> None:
    yours, fixed = adaptive(lab, True), best_fixed(True)
    assert yours > 1.05 * fixed, (
        f"adaptive {yours:.3f}x, best fixed length {fixed:.3f}x: let old rounds fade faster?"
    )


def test_on_even_text_it_loses_little_to_the_best_fixed_length(lab: SimpleNamespace) -> None:
    yours, fixed = adaptive(lab, False), best_fixed(False)
    assert yours > 0.95 * fixed, (
        f"adaptive {yours:.3f}x, best fixed length {fixed:.3f}x: do you remember enough rounds?"
    )
