"""How likely the text's own token was an accepted draft, rule by rule, from both laws at its
position.

Given the text x that a lossless rule emitted, whether its tokens were accepted drafts is chance
that these figures describe; target_law is P, draft_law is Q, and everything is at the text's own
token unless a sum says otherwise.

token     coin min(1, Q/P): target and draft emit x together with mass min(P, Q)(x) out of P(x);
          coins are independent
match     coin Q(x): the draft is drawn without regard to the target's draw, and must equal it (a
          greedy draft: 0 or 1)
gumbel    coin 1 / sum_y max(P_y, Q_y P_x / Q_x): both are the arg max under the same noise
          (2408.07978, theorem 2)
block     no coins: at least i drafts are kept with chance min over j <= i of prod_{m<=j} Q_m/P_m,
          at most 1 (from 2403.10444:
          the chance to keep a prefix is min(1, its predecessor's times P/Q), and what follows a
          kept one has the target's law); `traversal` on a chain is the same
trees     one coin a sibling: `siblings.py`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.core.records import Selection
from draftproof.core.rules import LOSSLESS, foretold
from draftproof.errors import UsageError
from draftproof.plan.siblings import depends_on_count, likeliest, sibling_chances

Floats = NDArray[np.float64]
CHAIN_RULES = tuple(name for name in LOSSLESS if foretold(name).chain)
TREE_RULES = tuple(name for name in LOSSLESS if foretold(name).tree)
"""Rules for sampled drafts that say how they are foretold; on a chain those for trees are `token`
or, `traversal`, `block`."""


@dataclass(frozen=True)
class Judge:
    """rule: one of CHAIN_RULES or TREE_RULES. fixed: the draft is the draft law's best tokens, not
    a draw. width: most siblings. selection: how they come about."""

    rule: str
    fixed: bool = False
    width: int = 1
    selection: Selection = "without_replacement"

    def __post_init__(self) -> None:
        known = TREE_RULES if self.width > 1 else CHAIN_RULES
        if self.rule not in known and not (self.fixed and self.rule in LOSSLESS):
            shape = "a sampled tree" if self.width > 1 else "a chain"
            raise UsageError(
                f"plan cannot foretell {shape} under rule {self.rule!r}: measure it with "
                f"bench; it knows {', '.join(known)}"
            )
        if (
            self.width > 1
            and not self.fixed
            and self.selection not in LOSSLESS[self.rule].selections
        ):
            raise UsageError(f"rule {self.rule!r} verifies no {self.selection} siblings")

    @property
    def joint(self) -> bool:
        """Whether `laws` gives ratios Q/P, of which only running products have a meaning."""
        return foretold(self.rule).chain == "joint" and self.width == 1 and not self.fixed

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of siblings for which `laws` has columns of their own; one stands for all where
        only places matter."""
        several = self.width > 1 and not self.fixed and depends_on_count(self.rule, self.selection)
        return tuple(range(1, self.width + 1)) if several else (self.width,)

    @property
    def num_columns(self) -> int:
        return sum(self.counts)

    def places(self, columns: Floats, count: int) -> Floats:
        """[n, count]: of this judge's columns [n, num_columns], those of nodes with `count`
        children."""
        held = count if count in self.counts else self.width
        first = sum(other for other in self.counts if other < held)
        return columns[:, first : first + count]

    def guesses(self, best: Sequence[Sequence[int]], tokens: Any) -> Floats:
        """Chances [n, width] when drafts are the best tokens: 1 where the b-th best is the
        token."""
        found = np.zeros((len(tokens), self.width))
        for row, (candidates, token) in enumerate(zip(best, tokens, strict=True)):
            if token in candidates[: self.width]:
                found[row, candidates.index(token)] = 1.0
        return found

    def laws(self, target_laws: Any, draft_laws: Any, tokens: Any) -> Floats:
        """Chances [n, num_columns] from both laws [n, vocab] at the tokens [n]; the ratios Q/P
        themselves where `joint`."""
        if self.fixed:
            return self.guesses([likeliest(law, self.width) for law in draft_laws], tokens)
        if self.width > 1:
            rows = enumerate(zip(target_laws, draft_laws, tokens, strict=True))
            return np.stack([self._siblings(p, q, int(x), i) for i, (p, q, x) in rows])
        places = np.arange(len(tokens))
        target, draft = (
            law[places, tokens].astype(np.float64) for law in (target_laws, draft_laws)
        )
        if foretold(self.rule).chain == "noise":
            return _coupled(target_laws, draft_laws, target, draft)[:, None]
        # a token the target gives nothing (a given answer, not its own) would have been no accepted
        # draft
        ratio = np.where(target > 0, draft / np.maximum(target, 1e-300), 0.0)
        chance = (
            draft
            if foretold(self.rule).chain == "draw"
            else ratio
            if self.joint
            else np.minimum(1.0, ratio)
        )
        return np.asarray(chance)[:, None]

    def _siblings(self, target_law: Any, draft_law: Any, token: int, seed: int) -> Floats:
        found = [
            sibling_chances(self.rule, self.selection, target_law, draft_law, token, k, seed)
            for k in self.counts
        ]
        return np.concatenate(found)


def _coupled(target_laws: Any, draft_laws: Any, target: Floats, draft: Floats) -> Floats:
    """1 / sum_y max(P_y, Q_y P_x / Q_x), row by row; 0 where either law gives the token nothing."""
    found = np.zeros(len(target))
    for row in np.flatnonzero((target > 0) & (draft > 0)):
        found[row] = 1 / np.maximum(
            target_laws[row], draft_laws[row] * (target[row] / draft[row])
        ).sum(dtype=np.float64)
    return np.minimum(found, 1.0)
