"""A check that shares nothing with the project's enumerator: its own walk over the outcomes of
chance, its own reading of the sampling parameters, its own models. The decoder is driven from
outside, through `generate` and what users call.

Chance is taken over where the decoder makes it. Each key stands for one uniform; a draw cuts [0, 1)
at the law's running sums, and a key asked for again keeps to the piece it fell into, so shared
uniforms are walked as what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from draftproof.decode import sequences, speculation

Tokens = tuple[int, ...]
Law = dict[Hashable, float]


class TooMany(Exception):
    """More outcomes than are worth walking."""


@dataclass
class Outcome:
    """One way through: `script` says which piece to take at each question, the first one where it
    ends."""

    script: tuple[int, ...]
    taken: list[int] = field(default_factory=list)
    others: list[tuple[int, int]] = field(default_factory=list)
    known: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    probability: float = 1.0
    repeats: int = 0

    def ask(self, key: Hashable, cuts: Sequence[float]) -> int:
        """Which stretch between `cuts` the uniform of `key` falls into."""
        low, high = self.known.get(key, (0.0, 1.0))
        self.repeats += key in self.known
        edges = [0.0, *cuts, 1.0]
        stretches = [(max(a, low), min(b, high)) for a, b in zip(edges, edges[1:], strict=False)]
        pieces = [(i, a, b) for i, (a, b) in enumerate(stretches) if b > a]
        place = len(self.taken)
        choice = self.script[place] if place < len(self.script) else 0
        if place >= len(self.script):
            self.others.append((place, len(pieces)))
        index, a, b = pieces[choice]
        self.taken.append(choice)
        self.known[key] = (a, b)
        self.probability *= (b - a) / (high - low)
        return index


def walk(run: Callable[[], Hashable], most: int) -> tuple[Law, int]:
    """The law of what `run` returns, and how often a key was asked for again. TooMany beyond `most`
    outcomes."""
    law: Law = {}
    repeats = count = 0
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        outcome = Outcome(waiting.pop())
        with driven(outcome):
            result = run()
        count, repeats = count + 1, repeats + outcome.repeats
        if count > most:
            raise TooMany
        law[result] = law.get(result, 0.0) + outcome.probability
        for place, pieces in outcome.others:
            waiting += [(*outcome.taken[:place], piece) for piece in range(1, pieces)]
    return law, repeats


@dataclass
class OwnChance:
    """The chance of one round. What belongs to the target is keyed by position, all else by the
    round and the node."""

    outcome: Outcome
    stream: Hashable
    start: int

    def _key(self, purpose: int, node: int) -> Hashable:
        if int(purpose) == 0:
            return (self.stream, 0, self.start + node)
        return (self.stream, int(purpose), self.start, node)

    def bernoulli(self, probability: Any, purpose: int, node: int) -> bool:
        chance = float(probability)
        assert chance >= 0, "no probability"
        return self.outcome.ask(self._key(purpose, node), [min(chance, 1.0)]) == 0

    def draw(self, law: Any, purpose: int, node: int) -> int:
        mass = np.asarray(
            law.detach().cpu().numpy() if hasattr(law, "detach") else law, dtype=np.float64
        )
        assert (mass >= 0).all() and mass.sum() > 0, "no law"
        last = int(np.flatnonzero(mass)[-1])
        return self.outcome.ask(
            self._key(purpose, node), (np.cumsum(mass) / mass.sum())[:last].tolist()
        )

    def draw_draft(self, law: Any, node: int, depth: int) -> int:
        return self.draw(law, 1, node)

    def draw_target(self, law: Any, depth: int) -> int:
        return self.draw(law, 0, depth)

    def first_failure(self, probabilities: Any, purpose: int) -> int:
        failed = (
            i for i, chance in enumerate(probabilities) if not self.bernoulli(chance, purpose, i)
        )
        return next(failed, len(probabilities))

    def last_success(self, probabilities: Any, purpose: int) -> int:
        places = reversed(range(len(probabilities)))
        return next((i + 1 for i in places if self.bernoulli(probabilities[i], purpose, i)), 0)


@contextmanager
def driven(outcome: Outcome) -> Iterator[None]:
    """The decoders' chance comes from `outcome`. Streams are told apart by what the decoders call
    them."""
    before = speculation.chance_of, sequences.chance_of

    def chance_of(stream: Hashable, *, coupled: bool = False) -> Callable[[int], OwnChance]:
        return lambda start: OwnChance(outcome, stream, start)

    speculation.chance_of = sequences.chance_of = chance_of
    try:
        yield
    finally:
        speculation.chance_of, sequences.chance_of = before


def total_variation(one: Law, other: Law) -> float:
    return 0.5 * sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other})


@dataclass
class RandomModel:
    """Laws [vocab] by the last `order` tokens, drawn once for each such context; with zeros and
    ties if asked."""

    vocab: int
    seed: int
    order: int
    zeros: float
    concentration: float
    ties: bool = False
    _known: dict[Tokens, Any] = field(default_factory=dict)

    def __call__(self, prefix: Sequence[int]) -> Any:
        key = tuple(int(token) for token in prefix[-self.order :])
        if key not in self._known:
            self._known[key] = self._drawn(key)
        return self._known[key]

    def _drawn(self, key: Tokens) -> Any:
        generator = np.random.default_rng([self.seed, 99, *(token + 1 for token in key)])
        mass = generator.dirichlet(np.full(self.vocab, self.concentration)) + 1e-4
        if self.ties and self.vocab > 2:
            mass[1] = mass[0]
        if self.zeros:
            without = generator.random(self.vocab) < self.zeros
            mass = mass if without.all() else np.where(without, 0.0, mass)
        return mass / mass.sum()

    def logits(self, prefix: Sequence[int]) -> Any:
        with np.errstate(divide="ignore"):
            return np.log(self(prefix))


class NoToken(Exception):
    """The target allows no token here: plain decoding fails on this path."""


FAILED = "failed"


Edit = Callable[[Tokens, Tokens, Any], Any]
"""(prompt and text, text, logits) -> logits: what a logits processor of the setting does, written
again."""


def next_law(
    logits: Any,
    prompt: Tokens,
    text: Tokens,
    asked: dict[str, Any],
    ends: Tokens,
    edits: Sequence[Edit],
) -> Any:
    """The law [vocab] of the next token by the definitions of transformers and vLLM. NoToken where
    there is none."""
    x = np.array(logits, dtype=np.float64)
    whole = prompt + text
    for token, bias in asked.get("logit_bias", {}).items():
        x[token] += bias
    penalty = asked.get("repetition_penalty", 1.0)
    for token in set(whole):
        x[token] = x[token] * penalty if x[token] < 0 else x[token] / penalty
    for token in set(text):
        x[token] -= asked.get("frequency_penalty", 0.0) * text.count(token) + asked.get(
            "presence_penalty", 0.0
        )
    x[list(_forbidden(whole, text, asked, ends))] = -np.inf
    if "allowed_token_ids" in asked:
        x[[token for token in range(len(x)) if token not in asked["allowed_token_ids"]]] = -np.inf
    for edit in edits:
        x = edit(whole, text, x)
    if not np.isfinite(x.max()):
        raise NoToken
    return _truncated(x, asked)


def _forbidden(whole: Tokens, text: Tokens, asked: dict[str, Any], ends: Tokens) -> set[int]:
    found = set(asked.get("suppress_tokens", ()))
    for word in asked.get("bad_words_ids", ()):
        before = tuple(word[:-1])
        if not before or whole[-len(before) :] == before:
            found.add(word[-1])
    if len(text) < asked.get("min_tokens", 0):
        found.update(ends, asked.get("stop_token_ids", ()))
    return found


def _truncated(x: Any, asked: dict[str, Any]) -> Any:
    temperature, k = asked.get("temperature", 1.0), asked.get("top_k", 0)
    if temperature == 0:
        return np.eye(len(x))[int(np.argmax(x))]
    x = (x - x.max()) / temperature
    if 0 < k < len(x):
        x = np.where(x < np.sort(x)[-k], -np.inf, x)
    if asked.get("top_p", 1.0) < 1:
        order = np.argsort(_softmax(x), kind="stable")
        removed = np.cumsum(_softmax(x)[order]) <= 1 - asked["top_p"]
        removed[-1] = False
        x[order[removed]] = -np.inf
    if asked.get("min_p", 0.0) > 0:
        x = np.where(_softmax(x) < asked["min_p"] * _softmax(x).max(), -np.inf, x)
    return _softmax(x)


def _softmax(x: Any) -> Any:
    mass = np.exp(x - x.max())
    return mass / mass.sum()


def text_law(
    model: RandomModel,
    prompt: Tokens,
    asked: dict[str, Any],
    longest: int,
    ends: Tokens,
    edits: Sequence[Edit] = (),
) -> Law:
    """The law of whole texts of at most `longest` tokens; (text, FAILED) where it comes to a place
    without a law."""
    stops = {*(() if asked.get("ignore_eos") else ends), *asked.get("stop_token_ids", ())}
    law: Law = {}

    def go_on(text: Tokens, mass: float) -> None:
        if len(text) >= longest or (
            text and text[-1] in stops and len(text) >= asked.get("min_tokens", 0)
        ):
            law[text] = law.get(text, 0.0) + mass
            return
        try:
            chances = next_law(model.logits(prompt + text), prompt, text, asked, ends, edits)
        except NoToken:
            law[text, FAILED] = law.get((text, FAILED), 0.0) + mass
            return
        for token in np.flatnonzero(chances):
            go_on((*text, int(token)), mass * float(chances[token]))

    go_on((), 1.0)
    return law
