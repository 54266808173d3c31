"""Pairs of 3-token models to prove rules on: laws that read the whole prefix, a Markov chain, laws
with zeros, a draft that overrates a single token, so that two siblings can both be worth trying
after a rejection, and one that differs from the target by next to nothing. And a pair over five
tokens, for three siblings and more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.models.table import TableModel

VOCAB = 3
WIDE = 5
EOS = 2
NEAR = (1e-3, 1e-5, 1e-7, 1e-9, 1e-11)
"""Masses by which the draft of the pair "near" differs from its target."""


class AskedAfterAnEnd(BaseException):
    """A law was asked for where the text has ended. No `Exception`: nothing may take it for a row
    that merely has no law."""


class NothingAfterAnEnd:
    """A logits processor that changes nothing, and goes off when it is asked about a text that
    holds an end token: it shows that no law is made, by target or drafter, after a token that ends
    the text."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if EOS in input_ids[0].tolist():
            raise AskedAfterAnEnd(f"the law after {input_ids[0].tolist()} was asked for")
        return scores


@dataclass(frozen=True)
class ToyGrammar:
    """A grammar over a toy's tokens that forbids one of them at every place, by all tokens
    generated before."""

    vocab_size: int = VOCAB

    def as_dict(self) -> dict[str, Any]:
        return {"grammar": "toy"}

    def begin(self) -> ToyMatcher:
        return ToyMatcher((), self.vocab_size)


class ToyMatcher:
    """A place in a text of `ToyGrammar`."""

    def __init__(self, text: tuple[int, ...], vocab_size: int) -> None:
        self._text, self._vocab_size = text, vocab_size

    def fork(self) -> ToyMatcher:
        return ToyMatcher(self._text, self._vocab_size)

    def consume(self, token: int) -> bool:
        allowed = bool(self.mask()[token])
        self._text = (*self._text, token)
        return allowed

    def mask(self) -> NDArray[np.bool_]:
        forbidden = (2 * sum(self._text) + len(self._text) + 1) % self._vocab_size
        allowed: NDArray[np.bool_] = np.arange(self._vocab_size) != forbidden
        return allowed

    def forced(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True)
class Pair:
    """A target and a draft model over the same three tokens."""

    name: str
    target: TableModel
    draft: TableModel


def _from_prefix(
    seed: int, sharpness: float, prefix: tuple[int, ...], size: int = VOCAB
) -> NDArray[np.float64]:
    """A law that depends on every token of the prefix and on its length."""
    rng = np.random.default_rng([seed, len(prefix), *prefix])
    mass = np.exp(sharpness * rng.normal(size=size))
    law: NDArray[np.float64] = mass / mass.sum()
    return law


def _with_zeros(seed: int, prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """As `_from_prefix` with about 30% of the entries zero: one of the three, nine times out of
    ten. Two are always left, so that no ban of a single token empties the law."""
    law = _from_prefix(seed, 1.0, prefix)
    rng = np.random.default_rng([seed + 1, len(prefix), *prefix])
    if rng.random() < 0.9:
        law[rng.integers(VOCAB)] = 0.0
    cut: NDArray[np.float64] = law / law.sum()
    return cut


def _overrating(law: NDArray[np.float64], prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """The law with one token, chosen by the prefix, made likelier at the others' expense,
    unevenly."""
    rng = np.random.default_rng([7, len(prefix), *prefix])
    changed = law * rng.uniform(0.3, 0.9, size=VOCAB)
    changed[rng.integers(VOCAB)] += 0.4
    mixed: NDArray[np.float64] = changed / changed.sum()
    return mixed


def _nearly(law: NDArray[np.float64], prefix: tuple[int, ...]) -> NDArray[np.float64]:
    """The law with a mass between 1e-3 and 1e-11, by the prefix, moved from its likeliest token to
    the two others."""
    moved = NEAR[(len(prefix) + sum(prefix)) % len(NEAR)] * np.array([1.0, 0.6, 0.4])
    changed: NDArray[np.float64] = law.copy()
    changed[np.argsort(-law, kind="stable")] += moved * [-1.0, 1.0, 1.0]
    return changed


@cache
def pairs() -> dict[str, Pair]:
    """Full history, Markov, zeros, overrated, near and wide, by name."""
    full = Pair(
        "full_history",
        TableModel(
            lambda prefix: _from_prefix(1, 1.0, prefix), vocab_size=VOCAB, eos_token_ids=(EOS,)
        ),
        TableModel(lambda prefix: _from_prefix(2, 1.0, prefix), vocab_size=VOCAB),
    )
    markov = Pair(
        "markov",
        TableModel([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]], eos_token_ids=(EOS,)),
        TableModel([[0.2, 0.5, 0.3], [0.5, 0.2, 0.3], [0.4, 0.5, 0.1]]),
    )
    zeros = Pair(
        "zeros",
        TableModel(lambda prefix: _with_zeros(3, prefix), vocab_size=VOCAB, eos_token_ids=(EOS,)),
        TableModel(lambda prefix: _with_zeros(5, prefix), vocab_size=VOCAB),
    )
    overrated = Pair(
        "overrated",
        full.target,
        TableModel(lambda prefix: _overrating(full.target.law(prefix), prefix), vocab_size=VOCAB),
    )
    near = Pair(
        "near",
        full.target,
        TableModel(lambda prefix: _nearly(full.target.law(prefix), prefix), vocab_size=VOCAB),
    )
    wide = Pair(
        "wide",
        TableModel(
            lambda prefix: _from_prefix(1, 0.7, prefix, WIDE), vocab_size=WIDE, eos_token_ids=(EOS,)
        ),
        TableModel(lambda prefix: _from_prefix(2, 0.7, prefix, WIDE), vocab_size=WIDE),
    )
    return {pair.name: pair for pair in (full, markov, zeros, overrated, near, wide)}
