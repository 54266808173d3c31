"""Engines over small known models, right and wrong, that an audit is tried on: for its power, its
level and its self-test.

A chain has one law for each context, the last token modulo their number, so that every mark of a
token is worked out once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.black_box.marks import Mark, mark
from draftproof.audit.mutants import CHAIN_MUTANTS, Verify
from draftproof.core.chance import Purpose, Scalar
from draftproof.core.faults import tempered
from draftproof.core.records import Array, Draft, Verdict
from draftproof.core.rules import RULES
from draftproof.core.step import FunctionLaws, GeneratorChance

Matrix = NDArray[np.float64]
LENGTH = 3
"""Drafts in a round."""


@dataclass
class Chain:
    """targets, drafts: laws [contexts, vocab]."""

    targets: Matrix
    drafts: Matrix
    _marks: dict[tuple[int, int, int], tuple[Mark, Mark]] = field(default_factory=dict)

    def target(self, prefix: tuple[int, ...]) -> Matrix:
        law: Matrix = self.targets[prefix[-1] % len(self.targets)]
        return law

    def draft(self, prefix: tuple[int, ...]) -> Matrix:
        law: Matrix = self.drafts[prefix[-1] % len(self.drafts)]
        return law

    def marks(
        self, tokens: tuple[int, ...], rng: np.random.Generator, knows_draft: bool = True
    ) -> Iterator[Mark]:
        """Of every token but the first."""
        for place in range(1, len(tokens)):
            least, most = self._both(
                tokens[max(place - 2, 0)], tokens[place - 1], tokens[place], knows_draft
            )
            coin = rng.random()
            pairs = zip(least.uniforms, most.uniforms, strict=True)
            yield replace(least, uniforms=tuple(low + coin * (high - low) for low, high in pairs))

    def _both(self, earlier: int, last: int, token: int, knows_draft: bool) -> tuple[Mark, Mark]:
        """The mark with coins 0 and 1; it is linear between them."""
        context, before = last % len(self.targets), earlier % len(self.targets)
        key = (before, context, token if knows_draft else -1 - token)
        if key not in self._marks:
            law, draft = self.targets[context], self.drafts[context] if knows_draft else None
            low, high = (
                mark(law, token, coin, context=context, draft=draft, before=self.targets[before])
                for coin in (0.0, 1.0)
            )
            self._marks[key] = low, high
        return self._marks[key]


def three_tokens() -> Chain:
    """The chain of `audit.toys.pairs()["markov"]`: overlaps 0.6, 0.5, 0.5."""
    targets = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    return Chain(targets, np.array([[0.2, 0.5, 0.3], [0.5, 0.2, 0.3], [0.4, 0.5, 0.1]]))


def thousand_tokens(seed: int = 0) -> Chain:
    """1,000 tokens in 16 contexts; mean overlap 0.72, mean entropy 4.2 nats."""
    rng = np.random.default_rng(seed)
    logits = 2.65 * rng.normal(size=(16, 1000))
    return Chain(_softmax(logits), _softmax(logits + 0.7 * rng.normal(size=(16, 1000))))


def _softmax(logits: Matrix) -> Matrix:
    mass = np.exp(logits - logits.max(axis=1, keepdims=True))
    law: Matrix = mass / mass.sum(axis=1, keepdims=True)
    return law


@dataclass(frozen=True)
class Engine:
    """verify: the rule, right or wrong. temper: of what drafts are really drawn from, under the
    claim that it is the draft law. reuses: drafts of one stream are drawn with the same noise in
    every round. widens: a second draft stands beside the first. shares: drafter and target draw
    with shared noise, as `gumbel` wants it."""

    verify: Verify
    temper: float = 1.0
    reuses: bool = False
    widens: bool = False
    shares: bool = False

    def stream(self, chain: Chain, num_tokens: int, rng: np.random.Generator) -> tuple[int, ...]:
        """0 and `num_tokens` tokens after it."""
        out = [0]
        for draft, verdict in self.rounds(chain, rng):
            out += emitted(draft, verdict)
            if len(out) > num_tokens:
                break
        return tuple(out[: num_tokens + 1])

    def rounds(self, chain: Chain, rng: np.random.Generator) -> Iterator[tuple[Draft, Verdict]]:
        """Drafts and what became of them, of one stream after the token 0; without end."""
        last = 0
        noise = rng.exponential(size=(LENGTH, chain.targets.shape[1])) if self.reuses else None
        while True:
            chance = _Coupled(rng) if self.shares else GeneratorChance(rng)
            draft = self._draft(chain, (last,), chance, noise)
            verdict = self.verify(draft, FunctionLaws(chain.target, (last,), draft), chance)
            yield draft, verdict
            last = emitted(draft, verdict)[-1]

    def _draft(
        self, chain: Chain, prefix: tuple[int, ...], chance: GeneratorChance, noise: Matrix | None
    ) -> Draft:
        tokens: tuple[int, ...] = ()
        laws: dict[int, Array] = {}
        for node in range(LENGTH):
            laws[node - 1] = chain.draft(prefix + tokens)
            drawn_from = (
                laws[node - 1] if self.temper == 1.0 else tempered(laws[node - 1], self.temper)
            )
            if noise is None:
                tokens += (int(chance.draw_draft(drawn_from, node, node)),)
            else:
                tokens += (int(np.argmin(noise[node] / drawn_from)),)
        parents: tuple[int, ...] = tuple(range(-1, LENGTH - 1))
        if self.widens:
            tokens, parents = (
                (*tokens, int(chance.draw(laws[-1], Purpose.DRAFT, LENGTH))),
                (*parents, -1),
            )
        return Draft(tokens, parents, laws, "iid")


def emitted(draft: Draft, verdict: Verdict) -> list[int]:
    """The tokens of a round."""
    return [*(draft.tokens[node] for node in verdict.path), int(verdict.token)]


class _Coupled(GeneratorChance):
    """Drafter and target draw the token at one depth with the same exponential clocks."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        object.__setattr__(self, "_clocks", {})

    def draw_draft(self, law: Array, node: int, depth: int) -> Scalar:
        return self.draw_target(law, depth)

    def draw_target(self, law: Array, depth: int) -> Scalar:
        clocks: dict[int, Matrix] = self._clocks  # type: ignore[attr-defined]
        if depth not in clocks:
            clocks[depth] = self.rng.exponential(size=len(law))
        with np.errstate(divide="ignore"):
            return int(np.argmin(clocks[depth] / np.asarray(law)))


_MUTANTS = {mutant.name: mutant.verify for mutant in CHAIN_MUTANTS}

EXACT: dict[str, Engine] = {
    "token": Engine(RULES["token"].verify),
    "block": Engine(RULES["block"].verify),
    "match": Engine(RULES["match"].verify),
    "tree": Engine(RULES["rrs"].verify, widens=True),
    "gumbel": Engine(RULES["gumbel"].verify, shares=True),
    "no bonus": Engine(_MUTANTS["missing bonus"]),
}
"""Engines whose text has the target's law, the slow one without a bonus token among them."""

FAULTY: dict[str, Engine] = {
    "no residual": Engine(_MUTANTS["correction from the target's law, no residual"]),
    "keep verifying": Engine(_MUTANTS["keep verifying after a rejection"]),
    "inverted ratio": Engine(_MUTANTS["ratio inverted"]),
    "arg max check": Engine(_MUTANTS["accept iff arg max, else draw from the target"]),
    "draft T=.7, ratio T=1": Engine(RULES["token"].verify, temper=0.7),
    "off by one": Engine(_MUTANTS["target row off by one position"]),
    "match, fresh redraw": Engine(_MUTANTS["match, then a fresh redraw"]),
    "bonus at T=.7": Engine(_MUTANTS["bonus at another temperature"]),
    "draft noise reused": Engine(RULES["token"].verify, reuses=True),
}
"""Engines with one fault each."""
