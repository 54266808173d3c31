"""What a rule does with one draft: the law of the accepted path, and of the token after the
recorded one.

The rule itself is run over every outcome of its chance, the draft given. A vocabulary of outcomes
would be too many, and none but the drafted tokens can change where a rule goes: a draw therefore
branches into each drafted token and all others as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.core.chance import Purpose, Scalar
from draftproof.core.laws import as_numpy
from draftproof.core.records import Array, Draft
from draftproof.core.rules.protocol import Rule, TargetLaws

Path = tuple[int, ...]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Explanation:
    """lengths: number of accepted drafts -> probability, given the draft. final_law: of the token
    after the recorded path, given draft and path [vocab], float64; None where the rule never goes
    there."""

    lengths: dict[int, float]
    final_law: Vector | None

    @property
    def mean(self) -> float:
        """Accepted drafts expected."""
        return sum(length * chance for length, chance in self.lengths.items())

    @property
    def variance(self) -> float:
        return sum(length**2 * chance for length, chance in self.lengths.items()) - self.mean**2


def explain(rule: Rule, draft: Draft, laws: TargetLaws, path: Path) -> Explanation:
    """Run `rule` over every outcome that matters. laws: the target's after each node; path: the
    recorded one."""
    lengths: dict[int, float] = defaultdict(float)
    final: Vector | None = None
    for reached, mass, law in _outcomes(rule, draft, laws):
        lengths[len(reached)] += mass
        if reached == path:
            final = law * mass if final is None else final + law * mass
    total = 0.0 if final is None else float(final.sum())
    return Explanation(dict(lengths), final / total if final is not None and total > 0 else None)


def _outcomes(rule: Rule, draft: Draft, laws: TargetLaws) -> Iterator[tuple[Path, float, Vector]]:
    """(path, probability, law of the last draw within its outcome) of every way the rule can go."""
    drafted = tuple(dict.fromkeys(draft.tokens))
    pending: list[tuple[int, ...]] = [()]
    while pending:
        script = pending.pop()
        chance = _Sketched(script, drafted)
        verdict = rule.verify(draft, laws, chance)
        assert chance.last is not None
        yield verdict.path, chance.probability, chance.last
        for turn in range(len(script), len(chance.taken)):
            pending.extend((*chance.taken[:turn], other) for other in chance.others[turn])


@dataclass
class _Sketched:
    """`Chance` along `script`, then along the first possible outcome. last: the law of the latest
    draw, within its outcome."""

    script: tuple[int, ...]
    drafted: tuple[int, ...]
    probability: float = 1.0
    last: Vector | None = None
    taken: list[int] = field(default_factory=list)
    others: list[tuple[int, ...]] = field(default_factory=list)

    def bernoulli(self, probability: float, purpose: Purpose, node: int) -> bool:
        share = min(max(float(probability), 0.0), 1.0)
        return self._follow((share, 1.0 - share)) == 0

    def draw(self, law: Array, purpose: Purpose, node: int) -> Scalar:
        """A drafted token, or the likeliest of all others, standing for them."""
        whole = np.array(as_numpy(law), dtype=np.float64)
        whole /= whole.sum()
        rest = whole.copy()
        rest[list(self.drafted)] = 0.0
        shares = [*(float(whole[token]) for token in self.drafted), float(rest.sum())]
        index = self._follow(shares)
        if index == len(self.drafted):
            self.last = rest / shares[index]
            return int(rest.argmax())
        self.last = np.zeros_like(whole)
        self.last[self.drafted[index]] = 1.0
        return self.drafted[index]

    def draw_draft(self, law: Array, node: int, depth: int) -> Scalar:
        return self.draw(law, Purpose.DRAFT, node)

    def draw_target(self, law: Array, depth: int) -> Scalar:
        return self.draw(law, Purpose.TARGET, depth)

    def first_failure(self, probabilities: Array, purpose: Purpose) -> Scalar:
        values = [float(value) for value in probabilities]
        return next(
            (i for i, value in enumerate(values) if not self.bernoulli(value, purpose, i)),
            len(values),
        )

    def last_success(self, probabilities: Array, purpose: Purpose) -> Scalar:
        values = [float(value) for value in probabilities]
        return next(
            (i + 1 for i in reversed(range(len(values))) if self.bernoulli(values[i], purpose, i)),
            0,
        )

    def _follow(self, shares: Any) -> int:
        possible = [index for index, share in enumerate(shares) if share > 0]
        turn = len(self.taken)
        index = self.script[turn] if turn < len(self.script) else possible[0]
        self.others.append(
            tuple(other for other in possible if other > index) if turn >= len(self.script) else ()
        )
        self.probability *= shares[index]
        self.taken.append(index)
        return index
