"""`speculative_step`: one round of speculative sampling on two plain functions, through the
library's own `token` rule.

A model is a function from a prefix (a tuple of ids) to a law [vocab]. Randomness comes from the
NumPy generator that is handed in and from nowhere else, so a run repeats from its seed. This is the
shortest way to see the rule at work; decoding real models with keyed chance is `decode/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.core.chance import Chance, Purpose, Scalar
from draftproof.core.formulas import checked_law, checked_length
from draftproof.core.laws import inverse_cdf
from draftproof.core.records import Array, Draft
from draftproof.core.rules.token import Token

LawFunction = Callable[[tuple[int, ...]], ArrayLike]


@dataclass(frozen=True)
class GeneratorChance:
    """`Chance` that draws one uniform after another from a NumPy generator; purposes, nodes and
    positions are not looked at."""

    rng: np.random.Generator

    def bernoulli(self, probability: float, purpose: Purpose, node: int) -> bool:
        return bool(self.rng.random() < probability)

    def draw(self, law: Array, purpose: Purpose, node: int) -> Scalar:
        return inverse_cdf(law, self.rng.random())

    def draw_draft(self, law: Array, node: int, depth: int) -> Scalar:
        return self.draw(law, Purpose.DRAFT, node)

    def draw_target(self, law: Array, depth: int) -> Scalar:
        return self.draw(law, Purpose.TARGET, depth)

    def first_failure(self, probabilities: Array, purpose: Purpose) -> Scalar:
        failures = self.rng.random(len(probabilities)) >= probabilities
        return int(np.argmax(np.append(failures, True)))

    def last_success(self, probabilities: Array, purpose: Purpose) -> Scalar:
        successes = self.rng.random(len(probabilities)) < probabilities
        return int(np.max(np.nonzero(np.append(True, successes))))


@dataclass(frozen=True)
class FunctionLaws:
    """The target's laws along one chain of drafts, from a function of the prefix."""

    law_fn: LawFunction
    prefix: tuple[int, ...]
    draft: Draft

    def row(self, node: int) -> NDArray[np.float64]:
        return checked_law("p_fn's law", self.law_fn(self.prefix + self.draft.tokens_to(node)))

    def rows(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        return np.stack([self.row(node) for node in nodes])

    def draw(self, node: int, chance: Chance) -> Scalar:
        return chance.draw_target(self.row(node), len(self.draft.nodes_to(node)))


def speculative_step(
    p_fn: LawFunction, q_fn: LawFunction, prefix: Sequence[int], k: int, rng: np.random.Generator
) -> list[int]:
    """The 1 to k + 1 tokens of one round after `prefix`; their law is the target's, whatever the
    drafter.

    p_fn, q_fn: target and drafter, prefix tuple -> law [vocab]. k >= 0: drafts in the round."""
    length = k if isinstance(k, int) and k >= 0 else int(checked_length("k", k))
    return round_tokens(p_fn, q_fn, tuple(prefix), length, GeneratorChance(rng))


def round_tokens(
    p_fn: LawFunction, q_fn: LawFunction, prefix: tuple[int, ...], k: int, chance: Chance
) -> list[int]:
    """The same round with any source of chance; under the enumerator its exact law comes out."""
    draft = draft_chain(q_fn, prefix, k, chance)
    verdict = Token().verify(draft, FunctionLaws(p_fn, prefix, draft), chance)
    return [*draft.tokens[: len(verdict.path)], verdict.token]


def draft_chain(q_fn: LawFunction, prefix: tuple[int, ...], k: int, chance: Chance) -> Draft:
    """k tokens drawn one after another from `q_fn`, each kept with the law it was drawn from."""
    tokens: tuple[int, ...] = ()
    laws: dict[int, Array] = {}
    for node in range(k):
        laws[node - 1] = checked_law("q_fn's law", q_fn(prefix + tokens))
        tokens += (int(chance.draw(laws[node - 1], Purpose.DRAFT, node)),)
    return Draft(tokens, tuple(range(-1, k - 1)), laws, "iid")
