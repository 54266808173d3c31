"""Do two draws share their random number? Correlations of numbers that are independent in an exact
engine.

Given the draft, the number of a replacement is uniform and an acceptance has a known probability,
so each product below has mean zero given everything before it, and its sum over the root of the sum
of its variances is standard normal in the limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from draftproof.audit.uniformity import normal_p_value, normal_score
from draftproof.audit.verdict import Finding

KINDS = (
    "replacement or bonus against its draft",
    "acceptance against its draft",
    "draft against the same draft a round before",
)


@dataclass
class Reuse:
    """products, variances: sums by kind. before: node -> score of its draft in the last round."""

    products: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    variances: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    before: dict[int, float] = field(default_factory=dict)

    def drafted(self, numbers: dict[int, float]) -> None:
        """The drafts of a round: node -> its number."""
        scores = {node: normal_score(number) for node, number in numbers.items()}
        for node, score in scores.items():
            if node in self.before:
                self._add(KINDS[2], score * self.before[node], self.before[node] ** 2)
        self.before = scores

    def accepted(self, node: int, accepted: bool, probability: float) -> None:
        """A draft that was put to the test."""
        if 0.0 < probability < 1.0 and node in self.before:
            score = self.before[node]
            self._add(
                KINDS[1],
                (accepted - probability) * score,
                probability * (1.0 - probability) * score**2,
            )

    def drawn(self, node: int, number: float) -> None:
        """The number of the token that replaced `node`, or came after it as a bonus."""
        if node in self.before:
            self._add(KINDS[0], normal_score(number) * self.before[node], self.before[node] ** 2)

    def findings(self) -> list[Finding]:
        """One a kind; the effect is the correlation."""
        found = []
        for kind in KINDS:
            n, variance = self.counts[kind], self.variances[kind]
            if n == 0 or variance == 0.0:
                continue
            z, effect = self.products[kind] / math.sqrt(variance), self.products[kind] / variance
            half = 1.96 / math.sqrt(variance)
            found.append(
                Finding(kind, z, normal_p_value(z), None, effect, (effect - half, effect + half), n)
            )
        return found

    def _add(self, kind: str, product: float, variance: float) -> None:
        self.products[kind] += product
        self.variances[kind] += variance
        self.counts[kind] += 1
