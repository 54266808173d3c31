"""Laws of rounds without sampling (every outcome summed) and with it."""

from __future__ import annotations

from functools import cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from draftproof.core.chance import Purpose, Scalar
from draftproof.core.enumerate import outcomes
from draftproof.core.records import Array
from draftproof.experiments.rounds import LawFunction, RoundFunction

BLOCK = 8192


def tv(law: Array, other: Array) -> float:
    """Total variation distance: half the sum of absolute differences."""
    return float(np.abs(np.asarray(law) - np.asarray(other)).sum() / 2)


def exact_law(
    play: RoundFunction,
    target_fn: LawFunction,
    draft_fn: LawFunction,
    prefix: tuple[int, ...],
    num_tokens: int,
    k: int,
) -> NDArray[np.float64]:
    """The law [vocab] * num_tokens of the first tokens after `prefix` when rounds of k drafts run
    until they are out."""
    vocab, start = len(target_fn(prefix)), len(prefix)

    @cache
    def following(context: tuple[int, ...]) -> NDArray[np.float64]:
        missing = num_tokens - (len(context) - start)
        law = np.zeros((vocab,) * missing)
        for outcome, tokens in outcomes(
            lambda chance: play(target_fn, draft_fn, context, k, chance), len(context)
        ):
            kept = tuple(tokens[:missing])
            rest = following(context + kept) if len(kept) < missing else 1.0
            law[kept] += outcome.probability * rest
        return law

    return following(prefix)


def exact_round_length(
    play: RoundFunction,
    target_fn: LawFunction,
    draft_fn: LawFunction,
    prefix: tuple[int, ...],
    k: int,
) -> float:
    """Mean number of tokens that one round after `prefix` emits."""
    ways = outcomes(lambda chance: play(target_fn, draft_fn, prefix, k, chance), len(prefix))
    return sum(outcome.probability * len(tokens) for outcome, tokens in ways)


class QuickChance:
    """A `Chance` drawing from a NumPy generator, quick for tiny vocabularies: uniforms by the
    block, plain loops."""

    def __init__(self, rng: np.random.Generator) -> None:
        blocks = (rng.random(BLOCK).tolist() for _ in count())
        self._next = (uniform for block in blocks for uniform in block).__next__

    def bernoulli(self, probability: float, purpose: Purpose, node: int) -> bool:
        return bool(self._next() < probability)

    def draw(self, law: Array, purpose: Purpose, node: int) -> Scalar:
        masses = law.tolist()
        point = self._next() * sum(masses)
        last = 0
        for token, mass in enumerate(masses):
            if mass > 0:
                last, point = token, point - mass
                if point < 0:
                    break
        return last

    def draw_draft(self, law: Array, node: int, depth: int) -> Scalar:
        return self.draw(law, Purpose.DRAFT, node)

    def draw_target(self, law: Array, depth: int) -> Scalar:
        return self.draw(law, Purpose.TARGET, depth)

    def first_failure(self, probabilities: Array, purpose: Purpose) -> Scalar:
        values = probabilities.tolist()
        return next((i for i, p in enumerate(values) if self._next() >= p), len(values))

    def last_success(self, probabilities: Array, purpose: Purpose) -> Scalar:
        return max(
            (i + 1 for i, p in enumerate(probabilities.tolist()) if self._next() < p), default=0
        )


def sampled_tokens(
    play: RoundFunction,
    target_fn: LawFunction,
    draft_fn: LawFunction,
    prefix: tuple[int, ...],
    num_tokens: int,
    k: int,
    runs: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """`runs` independent draws [runs, num_tokens] of what `exact_law` describes."""
    chance = QuickChance(rng)
    found = np.empty((runs, num_tokens), dtype=np.int64)
    for run in range(runs):
        context = prefix
        while len(context) < len(prefix) + num_tokens:
            context += tuple(play(target_fn, draft_fn, context, k, chance))
        found[run] = context[len(prefix) : len(prefix) + num_tokens]
    return found


def empirical_law(tokens: NDArray[np.int64], vocab: int) -> NDArray[np.float64]:
    """Frequencies [vocab] * num_tokens of rows of `tokens` [runs, num_tokens]."""
    shape = (vocab,) * tokens.shape[1]
    flat = np.ravel_multi_index(tuple(tokens.T), shape)
    counts: NDArray[np.float64] = np.bincount(flat, minlength=vocab ** tokens.shape[1]) / len(
        tokens
    )
    law: NDArray[np.float64] = counts.reshape(shape)
    return law


def noise_tv(law: Array, runs: int, repeats: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """TV [repeats] between `law` and the frequencies of `runs` draws from it: what an exact sampler
    shows."""
    flat = np.asarray(law).ravel()
    frequencies = rng.multinomial(runs, flat / flat.sum(), size=repeats) / runs
    distances: NDArray[np.float64] = np.abs(frequencies - flat).sum(axis=1) / 2
    return distances


def mean_noise_tv(law: Array, runs: int) -> float:
    """The mean of `noise_tv` for many runs: sum of sqrt(p (1 - p) / (2 pi runs))."""
    flat = np.asarray(law).ravel()
    return float(np.sqrt(flat * (1 - flat) / (2 * np.pi * runs)).sum())
