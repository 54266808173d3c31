"""How likely the text's own token was an accepted draft, rule by rule, from both laws at its position.

Given the text x that a lossless rule emitted, whether its tokens were accepted drafts is chance that these figures describe;
target_law is P, draft_law is Q, and everything is at the text's own token unless a sum says otherwise.

token     coin min(1, Q/P): target and draft emit x together with mass min(P, Q)(x) out of P(x); coins are independent
match     coin Q(x): the draft is drawn without regard to the target's draw, and must equal it (a greedy draft: 0 or 1)
gumbel    coin 1 / sum_y max(P_y, Q_y P_x / Q_x): both are the arg max under the same noise (2408.07978, theorem 2)
block     no coins: at least i drafts are kept with chance min over j <= i of prod_{m<=j} Q_m/P_m, at most 1 (from 2403.10444:
          the chance to keep a prefix is min(1, its predecessor's times P/Q), and what follows a kept one has the target's law);
          `traversal` on a chain is the same
trees     one coin a sibling, tried in order as `rrs` does: min(P_b, Q_b)(x) times the chance that the b - 1 earlier ones were
          rejected, over P(x); with P_b the residual and Q_b the siblings' law left. `traversal` accepts at least as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.core.rules import RULES
from draftproof.errors import UsageError

Floats = NDArray[np.float64]
PLAYED = 4
"""Draws of the earlier siblings over which the chance of a later one is averaged."""
TREE_RULES = ("rrs", "traversal")
CHAIN_RULES = ("token", "match", "gumbel", "block")


@dataclass(frozen=True)
class Judge:
    """rule: one of CHAIN_RULES or TREE_RULES. fixed: the draft is the draft law's best tokens, not a draw. width: siblings.
    replaced: siblings are drawn independently (i.i.d.) instead of without replacement."""

    rule: str
    fixed: bool = False
    width: int = 1
    replaced: bool = False

    def __post_init__(self) -> None:
        known = TREE_RULES if self.width > 1 and not self.fixed else CHAIN_RULES + TREE_RULES
        if self.rule not in known and not (self.fixed and self.rule in RULES and RULES[self.rule].lossless):
            shape = "a sampled tree" if self.width > 1 else "a chain"
            raise UsageError(
                f"plan cannot foretell {shape} under rule {self.rule!r}: measure it with bench; it knows {', '.join(known)}"
            )

    @property
    def joint(self) -> bool:
        """Whether `laws` gives ratios Q/P, of which only running products have a meaning."""
        return self.rule in ("block", "traversal") and self.width == 1 and not self.fixed

    def guesses(self, best: Sequence[Sequence[int]], tokens: Any) -> Floats:
        """Chances [n, width] when drafts are the best tokens: 1 where the b-th best is the token."""
        found = np.zeros((len(tokens), self.width))
        for row, (candidates, token) in enumerate(zip(best, tokens, strict=True)):
            if token in candidates[: self.width]:
                found[row, candidates.index(token)] = 1.0
        return found

    def laws(self, target_laws: Any, draft_laws: Any, tokens: Any) -> Floats:
        """Chances [n, width] from both laws [n, vocab] at the tokens [n]; the ratios Q/P themselves where `joint`."""
        if self.fixed:
            order = [np.argsort(-law, kind="stable")[: self.width].tolist() for law in draft_laws]
            return self.guesses(order, tokens)
        if self.width > 1:
            rows = zip(target_laws, draft_laws, tokens, strict=True)
            return np.stack([_siblings(p, q, int(x), self.width, self.replaced, i) for i, (p, q, x) in enumerate(rows)])
        places = np.arange(len(tokens))
        target, draft = (law[places, tokens].astype(np.float64) for law in (target_laws, draft_laws))
        if self.rule == "gumbel":
            return _coupled(target_laws, draft_laws, target, draft)[:, None]
        # a token the target gives nothing (a given answer, not its own) would have been no accepted draft
        ratio = np.where(target > 0, draft / np.maximum(target, 1e-300), 0.0)
        chance = draft if self.rule == "match" else ratio if self.joint else np.minimum(1.0, ratio)
        return np.asarray(chance)[:, None]


def _coupled(target_laws: Any, draft_laws: Any, target: Floats, draft: Floats) -> Floats:
    """1 / sum_y max(P_y, Q_y P_x / Q_x), row by row; 0 where either law gives the token nothing."""
    found = np.zeros(len(target))
    for row in np.flatnonzero((target > 0) & (draft > 0)):
        found[row] = 1 / np.maximum(target_laws[row], draft_laws[row] * (target[row] / draft[row])).sum(dtype=np.float64)
    return np.minimum(found, 1.0)


def _siblings(target_law: Any, draft_law: Any, token: int, width: int, replaced: bool, seed: int) -> Floats:
    """Chance that each of `width` siblings, tried in order, is the accepted one and is `token`; over the token's own mass."""
    mass = float(target_law[token])
    found = np.zeros(width)
    if mass <= 0:
        return found
    rng = np.random.default_rng(seed)
    for _ in range(PLAYED):
        p, q, alive = target_law.astype(np.float64), draft_law.astype(np.float64), 1.0
        for place in range(width):
            found[place] += alive * min(p[token], q[token]) / mass / PLAYED
            if place + 1 == width or not q.any():
                break
            drawn = int(rng.choice(len(q), p=q / q.sum()))
            alive *= 1 - min(1.0, p[drawn] / q[drawn])
            left = np.maximum(p - q, 0.0)
            if alive <= 0 or left.sum() <= 0:
                break
            p = left / left.sum()
            q = q if replaced else _without(q, drawn)
    return np.minimum(found, 1.0)


def _without(law: Floats, token: int) -> Floats:
    left = law.copy()
    left[token] = 0.0
    total = left.sum()
    return left / total if total > 0 else left
