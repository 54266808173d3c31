"""Keyed randomness: a number depends on what it is for, never on how many numbers were drawn
before.

A stream is one sequence's: `stream_key` makes it from the seed, the prompt, the sample and the
opening of the drafter's memory, so that no two sequences share a number. Within it, draft,
acceptance and replacement draws are keyed by (committed length at the start of the round, purpose,
node), target draws (plain decoding and the rule `match`) by absolute position. Keys therefore never
repeat along a path, a run replays from its seed, and `match` emits the very tokens plain decoding
would.

The generator is Threefry-2x32 with 20 rounds (Salmon et al., SC 2011): additions, rotations and
exclusive ors only, so plain integers, NumPy and torch give the same bits. `core/enumerate.py` holds
the source that walks every outcome instead."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from struct import pack
from typing import Protocol

from array_api_compat import array_namespace, device

from draftproof.core.laws import Scalar as Scalar
from draftproof.core.laws import in_memory, inverse_cdf
from draftproof.core.records import Array

MASK = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF
NODES = (1 << 24) - 1
"""Nodes of a round, and tokens of a vocabulary, that keys can tell apart."""
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
"""Of Threefry-2x32, here and over arrays in `core/coupled.py`."""


class Purpose(IntEnum):
    """What a draw is for. TARGET is keyed by absolute position, NOISE by position and token, all
    others by the round."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    REPLACEMENT = 3
    NOISE = 4


class Chance(Protocol):
    """The only door through which randomness enters rules and drafters, for one round of one
    sample."""

    def bernoulli(self, probability: float, purpose: Purpose, node: int) -> bool:
        """True with `probability`; never at 0, always at 1."""

    def draw(self, law: Array, purpose: Purpose, node: int) -> Scalar:
        """A token from `law` [vocab] (need not be normalised); never one of probability zero."""

    def draw_draft(self, law: Array, node: int, depth: int) -> Scalar:
        """A drafted token for `node`, `depth` positions after the start of the round."""

    def draw_target(self, law: Array, depth: int) -> Scalar:
        """A token of the target's own, `depth` positions after the start of the round, keyed by
        absolute position."""

    def first_failure(self, probabilities: Array, purpose: Purpose) -> Scalar:
        """Index of the first failing trial among `probabilities` [n], trial i keyed by node i; n
        when none fails."""

    def last_success(self, probabilities: Array, purpose: Purpose) -> Scalar:
        """1 + index of the last succeeding trial among `probabilities` [n]; 0 when none
        succeeds."""


def threefry2x32(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Two 32-bit words for a 2x32-bit key and counter (Random123's threefry2x32-20)."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    x0, x1 = (counter[0] + key[0]) & MASK, (counter[1] + key[1]) & MASK
    for r in range(20):
        x0 = (x0 + x1) & MASK
        rotation = ROTATIONS[r % 8]
        x1 = (((x1 << rotation) | (x1 >> (32 - rotation))) & MASK) ^ x0
        if r % 4 == 3:
            step = r // 4 + 1
            x0 = (x0 + schedule[step % 3]) & MASK
            x1 = (x1 + schedule[(step + 1) % 3] + step) & MASK
    return x0, x1


def unit_interval(words: tuple[int, int]) -> float:
    """53 of the 64 bits as a double in [0, 1)."""
    return ((words[0] >> 5) * 67108864 + (words[1] >> 6)) / 9007199254740992.0


def stream_key(
    seed: int,
    sample: int = 0,
    *,
    prompt: Sequence[int] = (),
    opening: int = 0,
    known: Sequence[int] = (),
) -> tuple[int, int]:
    """The Threefry key of one sequence: 64 bits of BLAKE2b (RFC 7693) over 64-bit words.

    seed: 64 bits. sample: which of the texts of one request. prompt: its token ids, so that prompts
    with one seed share nothing. opening: which request it is over the memory of a drafter that
    learns, where that may matter; 0 elsewhere. known: texts that were there before and that drafts
    may repeat, where that may matter: made with this seed, they would know the coins that judge
    them."""
    if known:
        opening = _hashed((opening, *known), purpose=b"known")
    high, low = divmod(_hashed((seed, sample, opening, *prompt)), 1 << 32)
    return high, low


SEED_BITS = 53
"""Of every seed that nobody gave: it survives readers of JSON that keep numbers as doubles."""


def fresh_seed() -> int:
    """The seed of a request that brings none."""
    return secrets.randbits(SEED_BITS)


def copy_seed(seed: int, copy: int) -> int:
    """The seed of the `copy`-th (from 1) further request with this seed and the same prompt; of
    SEED_BITS."""
    return _hashed((seed, copy), purpose=b"copy") >> 64 - SEED_BITS


def _hashed(words: Sequence[int], purpose: bytes = b"stream") -> int:
    data = pack(f"<{len(words)}Q", *(word & MASK64 for word in words))
    return int.from_bytes(blake2b(data, digest_size=8, person=purpose).digest(), "little")


@dataclass(frozen=True)
class KeyedChance:
    """Chance of one round: `key` from `stream_key`, `start` the committed length when the round
    began."""

    key: tuple[int, int]
    start: int

    def uniform(self, purpose: Purpose, node: int) -> float:
        if not -1 <= node < NODES:
            raise ValueError(f"node {node} has no key of its own; nodes go from -1 to {NODES - 1}")
        base = self.start + node if purpose is Purpose.TARGET else self.start
        tail = 0 if purpose is Purpose.TARGET else node + 1
        return unit_interval(threefry2x32(self.key, (base & MASK, (purpose << 24) | tail)))

    def bernoulli(self, probability: float, purpose: Purpose, node: int) -> bool:
        return self.uniform(purpose, node) < float(probability)

    def draw(self, law: Array, purpose: Purpose, node: int) -> Scalar:
        return inverse_cdf(law, self.uniform(purpose, node))

    def draw_draft(self, law: Array, node: int, depth: int) -> Scalar:
        return self.draw(law, Purpose.DRAFT, node)

    def draw_target(self, law: Array, depth: int) -> Scalar:
        return self.draw(law, Purpose.TARGET, depth)

    def first_failure(self, probabilities: Array, purpose: Purpose) -> Scalar:
        if in_memory(probabilities):
            values = probabilities.tolist()
            return next(
                (i for i, p in enumerate(values) if not self.uniform(purpose, i) < p), len(values)
            )
        xp = array_namespace(probabilities)
        failures = self._uniforms(probabilities, purpose) >= probabilities
        end = xp.ones(1, dtype=xp.bool, device=device(probabilities))
        return xp.argmax(xp.astype(xp.concat([failures, end]), xp.int8))

    def last_success(self, probabilities: Array, purpose: Purpose) -> Scalar:
        if in_memory(probabilities):
            values = probabilities.tolist()
            return next(
                (
                    i + 1
                    for i in reversed(range(len(values)))
                    if self.uniform(purpose, i) < values[i]
                ),
                0,
            )
        xp = array_namespace(probabilities)
        successes = self._uniforms(probabilities, purpose) < probabilities
        places = xp.arange(probabilities.shape[0] + 1, device=device(probabilities))
        start = xp.ones(1, dtype=xp.bool, device=device(probabilities))
        return xp.max(xp.where(xp.concat([start, successes]), places, xp.zeros_like(places)))

    def _uniforms(self, probabilities: Array, purpose: Purpose) -> Array:
        xp = array_namespace(probabilities)
        values = [self.uniform(purpose, node) for node in range(probabilities.shape[0])]
        return xp.asarray(values, dtype=xp.float64, device=device(probabilities))
