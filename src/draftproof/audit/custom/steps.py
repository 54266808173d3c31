"""The whole decode loop of a step function `step(p, q, prefix, k, rng) -> tokens`, enumerated.

p, q: the target and the drafter as functions from a prefix (a tuple of ids) to a law, an array
[vocab] that sums to 1. k: how many tokens to draft. rng: a generator with NumPy's methods
(`branching.py`). The step returns the tokens of one round, one to k + 1 of them; the loop calls it
again on the longer prefix. `draftproof.speculative_step` is such a function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.custom.branching import ELSEWHERE, Branch, BranchingGenerator, branches
from draftproof.audit.custom.wrong import Text
from draftproof.audit.exact import Law
from draftproof.errors import DraftproofError, UsageError

Step = Callable[..., Sequence[int]]
LawOf = Callable[[Text], NDArray[np.float64]]
REPEATS = 128
"""Runs with the same chance that must give the same tokens."""


class StepLoop:
    """The law of the first `horizon` tokens after `prompt`, and every outcome of every round on the
    way."""

    def __init__(self, step: Step, p: LawOf, q: LawOf, k: int, prompt: Text, horizon: int) -> None:
        self.step, self.p, self.q, self.k, self.prompt = step, p, q, k, prompt
        self.horizon = horizon
        self.vocab_size = len(p(prompt))
        self._rounds: dict[Text, list[tuple[float, Text, tuple[Branch, ...]]]] = {}
        self._laws: dict[Text, Law] = {}
        self._check_repeats()

    def expand(self, emitted: Text) -> list[tuple[float, Text, tuple[Branch, ...]]]:
        """Every outcome of the round that follows `emitted`."""
        if emitted not in self._rounds:
            found = branches(lambda rng: self._tokens(emitted, rng))
            self._rounds[emitted] = [
                (mass, (*emitted, *tokens), choices) for mass, tokens, choices in found
            ]
        return self._rounds[emitted]

    def law(self, emitted: Text = ()) -> Law:
        """Text -> probability, all texts `horizon` long, from `emitted` on."""
        if len(emitted) >= self.horizon:
            return {emitted[: self.horizon]: 1.0}
        if emitted not in self._laws:
            law: Law = defaultdict(float)
            for probability, after, _ in self.expand(emitted):
                for text, mass in self.law(after).items():
                    law[text] += probability * mass
            self._laws[emitted] = dict(law)
        return self._laws[emitted]

    def target_law(self) -> Law:
        """The target's own."""

        def texts(emitted: Text, mass: float) -> Iterator[tuple[Text, float]]:
            if len(emitted) == self.horizon:
                yield emitted, mass
                return
            for token, share in enumerate(self.p((*self.prompt, *emitted)).tolist()):
                if share > 0:
                    yield from texts((*emitted, token), mass * share)

        return dict(texts((), 1.0))

    def tokens_per_round(self) -> float:
        """Of the first round."""
        return sum(probability * len(after) for probability, after, _ in self.expand(()))

    def _tokens(self, emitted: Text, rng: BranchingGenerator) -> Text:
        """One run of the step, its laws handed out fresh so that nothing written into them outlives
        it."""
        prefix = (*self.prompt, *emitted)
        try:
            given = self.step(_kept(self.p), _kept(self.q), prefix, self.k, rng)
        except DraftproofError:
            raise
        except Exception as error:
            raise UsageError(
                f"the function raised {type(error).__name__} after {prefix}: {error}"
            ) from error
        return self._checked(given, prefix)

    def _checked(self, given: Any, prefix: Text) -> Text:
        try:
            tokens = tuple(int(token) for token in given)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the function returned {given!r} after {prefix}; it returns a list of token ids"
            ) from error
        if not 1 <= len(tokens) <= self.k + 1:
            raise UsageError(
                f"the function returned {len(tokens)} tokens after {prefix}; a round has "
                f"1 to k + 1 = {self.k + 1}"
            )
        if not all(0 <= token < self.vocab_size for token in tokens):
            raise UsageError(
                f"the function returned {list(tokens)} after {prefix}; ids go from 0 to "
                f"{self.vocab_size - 1}"
            )
        return tokens

    def _check_repeats(self) -> None:
        """UsageError when the same choices of chance do not give the same tokens again."""
        generators = [BranchingGenerator() for _ in range(REPEATS)]
        if len({(self._tokens((), rng), tuple(rng.path)) for rng in generators}) > 1:
            raise UsageError(ELSEWHERE)


def _kept(law_of: LawOf) -> LawOf:
    """A function of a prefix that gives one array a prefix, a copy of its own: a step that writes
    into a law reads it so again, as it would from a model's buffer."""
    made: dict[Text, NDArray[np.float64]] = {}

    def law(prefix: Sequence[int]) -> NDArray[np.float64]:
        key = tuple(int(token) for token in prefix)
        if key not in made:
            made[key] = np.array(law_of(key), dtype=float)
        return made[key]

    return law
