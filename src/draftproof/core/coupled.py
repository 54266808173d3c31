"""Shared Gumbel noise: the exponential E[t][x] of a position and a token, and the chance that draws
by it.

A draw from law P at position t is arg max P(x)/E[t][x] = arg max (log P(x) + G[t][x]) with G = -log
E (the Gumbel-max trick). Two laws drawn from with the same noise agree as often as their overlap
nearly allows (Daliri, Musco, Suresh 2408.07978). The noise is a function of (seed, sample,
position, token) alone; it is made for tokens of positive probability only, so under top-k or top-p
a draw costs a handful of numbers and without truncation one for every token of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from array_api_compat import array_namespace

from draftproof.core.chance import MASK, PARITY, ROTATIONS, KeyedChance, Purpose, Scalar
from draftproof.core.records import Array


def threefry_words(key: tuple[int, int], first: int, second: Array) -> tuple[Array, Array]:
    """`threefry2x32(key, (first, s))` for every s in `second` [n], int64 values below 2^32: two
    int64 arrays of words.

    64-bit integers with a mask give NumPy and torch the same bits; neither needs unsigned
    arithmetic."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    x1 = (second + key[1]) & MASK
    x0 = x1 * 0 + ((first + key[0]) & MASK)
    for r in range(20):
        x0 = (x0 + x1) & MASK
        rotation = ROTATIONS[r % 8]
        x1 = (((x1 << rotation) | (x1 >> (32 - rotation))) & MASK) ^ x0
        if r % 4 == 3:
            step = r // 4 + 1
            x0 = (x0 + schedule[step % 3]) & MASK
            x1 = (x1 + (schedule[(step + 1) % 3] + step)) & MASK
    return x0, x1


def noise_uniforms(key: tuple[int, int], position: int, tokens: Array) -> Array:
    """Uniforms in (0, 1), never an end, one for each of `tokens` [n] (int64) at absolute
    `position`; float64."""
    xp = array_namespace(tokens)
    high, low = threefry_words(key, position & MASK, tokens + (Purpose.NOISE << 24))
    whole = (high >> 6) * 67108864 + (low >> 6)  # 26 + 26 bits, so that adding a half is exact
    return (xp.astype(whole, xp.float64) + 0.5) / 4503599627370496.0


def gumbel_draw(law: Array, key: tuple[int, int], position: int) -> Array:
    """The token (0-d int64) that `law` [vocab], not necessarily normalised, picks with the noise of
    `position`."""
    xp = array_namespace(law)
    tokens = xp.astype(xp.nonzero(law > 0)[0], xp.int64)
    exponentials = -xp.log(noise_uniforms(key, position, tokens))
    return tokens[xp.argmax(xp.astype(law[tokens], xp.float64) / exponentials)]


@dataclass(frozen=True)
class CoupledChance(KeyedChance):
    """Chance of one round in which drafted and target tokens are drawn with the noise of their
    position.

    Valid only for a rule that emits the target's own draws (`gumbel`): draft and target draws are
    not independent."""

    def draw_draft(self, law: Array, node: int, depth: int) -> Scalar:
        return gumbel_draw(law, self.key, self.start + depth)

    def draw_target(self, law: Array, depth: int) -> Scalar:
        return gumbel_draw(law, self.key, self.start + depth)
