"""Faults of drafters that depend on more than the context: n-grams of the target's own, other
tokenizers, parts of it."""

from __future__ import annotations

from draftproof.audit.mutants import Array, Mutant, fresh_redraw, residual, with_parts
from draftproof.core.chance import Chance
from draftproof.core.records import ROOT, Draft, Verdict
from draftproof.core.rules import RULES
from draftproof.core.rules.protocol import TargetLaws

LEFT = 0.6
"""The share of a draft law that the tokens both tokenizers have are taken to hold, where the fault
needs a number."""


def _no_bonus_after_an_n_gram(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """A wholly accepted n-gram ends the round with its last token."""
    verdict = RULES["match"].verify(draft, laws, chance)
    if not verdict.path or verdict.path[-1] in draft.children:
        return verdict
    return Verdict(verdict.path[:-1], draft.tokens[verdict.path[-1]])


def _same_text(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """A guess passes when the target's own token begins with the same text ("a" and "ab" in the
    toys)."""
    path: list[int] = []
    for i, token in enumerate(draft.tokens):
        drawn = int(laws.draw(path[-1] if path else ROOT, chance))
        if drawn != token and not (token == 0 and drawn == 2):
            return Verdict(tuple(path), drawn)
        path.append(i)
    return Verdict(tuple(path), int(laws.draw(path[-1] if path else ROOT, chance)))


def _unrestricted(p: Array, q: Array, token: int) -> float:
    return min(1.0, float(p[token] / (LEFT * q[token])))


def _agree(p: Array, q: Array, token: int) -> float:
    """Whether the token is likely enough to both."""
    return float(token in (int(p.argmax()), int(q.argmax())))


OTHER_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "n-grams matched, then a fresh redraw",
        "REST in kind",
        fresh_redraw,
        draft="lookahead",
        natural="match",
    ),
    Mutant(
        "no bonus after a whole n-gram",
        "LookaheadDecoding",
        _no_bonus_after_an_n_gram,
        draft="lookahead",
        natural="match",
    ),
    Mutant(
        "guesses accepted by equal text",
        "tempting across tokenizers",
        _same_text,
        draft="text_route",
        natural="match",
    ),
    Mutant(
        "drawn from the shared tokens, ratio by the whole law",
        "tempting across tokenizers",
        with_parts(accept=_unrestricted, correct=lambda p, q: residual(p, LEFT * q)),
        draft="shared_route",
    ),
    Mutant(
        "drafts of the first layers kept where the last ones agree",
        "greedy checks of self-drafts at T > 0",
        with_parts(accept=_agree, correct=lambda p, q: p),
        draft="early_exit",
        pairs=("markov",),
    ),
    Mutant(
        "self-drafts without some layers, bonus at another temperature",
        "common",
        with_parts(bonus=lambda p: p**2 / (p**2).sum()),
        draft="layer_skip",
        pairs=("markov",),
    ),
)
