"""What the package needs to know of a rule beside the rule itself; stated at the end of the rule's
own file, as `STATED`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from draftproof.core.expected_chains import LawOf, Vector, Weight, every_path
from draftproof.core.expected_trees import (
    Siblings,
    Tokens,
    constants_and_one,
    fixed,
    match_iid,
    match_in_turn,
)
from draftproof.core.records import Selection
from draftproof.core.rules.protocol import Rule

Guesses = Callable[[Sequence[tuple[int, ...]], LawOf, tuple[int, ...], frozenset[int]], float]
Form = Literal["chain", "tree"]


@dataclass(frozen=True)
class Formula:
    """A rule's expected tokens of a round.

    chain: the probability that a token of a chain is kept. siblings: for rules that take trees and
    walk down them, which child of a node is accepted, by selection. tree: for those that take trees
    otherwise, the expected tokens themselves. guesses: over fixed guesses given as paths.
    tolerance: how far a round may be off by rounding."""

    chain: Weight
    siblings: dict[Selection, Siblings] | None = None
    tree: Tokens | None = None
    guesses: Guesses = every_path
    tolerance: float = 1e-12


@dataclass(frozen=True)
class Foretold:
    """How likely a token of the text was an accepted draft, for `plan`; the figures are in
    `plan/acceptance.py` and `plan/siblings.py`. chain, tree: of sampled drafts; None where it is
    not foretold.

    "ratio": min(1, Q/P) a token, siblings by what a rejection leaves; "joint": running products of
    Q/P; "draw": the draft equals the target's own draw; "noise": both draw by one noise; "divided":
    K-SEQ's P/rho."""

    chain: Literal["ratio", "joint", "draw", "noise"] | None = None
    tree: Literal["ratio", "draw", "noise", "divided"] | None = None


@dataclass(frozen=True)
class Stated:
    """rule: the rule. expected: its expected length; None for a lossy rule, which has no proof.
    natural: the forms of sampled draft, with the selection of siblings, that it verifies unless
    another rule is asked for. foretold: what `plan` goes by; without it `plan` refuses the rule in
    a sentence. name: how one asks for it, where its own name says more. vllm: its word in vLLM's
    `rejection_sample_method`."""

    rule: Rule
    expected: Formula | None = None
    natural: frozenset[tuple[Form, Selection]] = frozenset()
    foretold: Foretold = Foretold()
    name: str = ""
    vllm: str | None = None


def _matched(p: Vector, rest: Vector) -> Vector:
    return p * rest


MATCHED: dict[Selection, Siblings] = {
    "fixed": fixed,
    "iid": match_iid,
    "without_replacement": match_in_turn,
    "top_k_plus_one": constants_and_one(_matched),
}
"""Which child is accepted where the target draws its token and no draft law is read."""
