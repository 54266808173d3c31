"""Wrong rules for trees that must be caught, each a fault seen in public code or one step away from
a right rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from draftproof.audit.mutants import CHAIN_MUTANTS, Mutant
from draftproof.audit.other_mutants import OTHER_MUTANTS
from draftproof.core.chance import Chance, Purpose
from draftproof.core.laws import residual
from draftproof.core.records import ROOT, Draft, Verdict
from draftproof.core.rules import RULES
from draftproof.core.rules.k_seq import rejected_mass
from draftproof.core.rules.protocol import TargetLaws
from draftproof.core.siblings import sibling_law

Array = Any
SiblingLaw = Callable[[Draft, Sequence[int], int, Array], Array]
"""(draft, the parent's children in visiting order, the child's place among them, the target's law)
-> the law it is judged by."""


def _true_law(draft: Draft, children: Sequence[int], place: int, law: Array) -> Array:
    return sibling_law(draft, children[place], law)


def _rejecting(
    drawn_from: SiblingLaw = _true_law,
    order: Callable[[Draft, Sequence[int]], Sequence[int]] = lambda draft, nodes: nodes,
) -> Callable[[Draft, TargetLaws, Chance], Verdict]:
    """Recursive rejection with the siblings' law or their order exchanged."""

    def verify(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
        path: list[int] = []
        while True:
            node = path[-1] if path else ROOT
            law, children = laws.row(node), order(draft, draft.children.get(node, ()))
            for place, child in enumerate(children):
                token, q = draft.tokens[child], drawn_from(draft, children, place, law)
                if chance.bernoulli(min(1.0, float(law[token] / q[token])), Purpose.ACCEPT, child):
                    path.append(child)
                    break
                law = residual(law, q)
                law = law / law.sum()
            else:
                return Verdict(tuple(path), int(chance.draw(law, Purpose.REPLACEMENT, 0)))

    return verify


def _less_earlier(draft: Draft, children: Sequence[int], place: int, renormalised: bool) -> Array:
    q = np.array(draft.laws[draft.parents[children[place]]], dtype=np.float64)
    q[[draft.tokens[child] for child in children[:place]]] = 0.0
    return q / q.sum() if renormalised else q


def _by_probability(draft: Draft, children: Sequence[int]) -> Sequence[int]:
    return sorted(
        children, key=lambda child: -float(draft.laws[draft.parents[child]][draft.tokens[child]])
    )


def _k_seq_with_rho_one(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    path: list[int] = []
    while True:
        node = path[-1] if path else ROOT
        law, children = laws.row(node), draft.children.get(node, ())
        for child in children:
            token = draft.tokens[child]
            if chance.bernoulli(
                min(1.0, float(law[token] / draft.laws[node][token])), Purpose.ACCEPT, child
            ):
                path.append(child)
                break
        else:
            left = rejected_mass(law, draft.laws[node], 1.0, len(children)) if children else law
            return Verdict(tuple(path), int(chance.draw(left, Purpose.REPLACEMENT, 0)))


def _pruned(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """Nodes are drawn, those with a low draft probability dropped, and the rest judged as if all
    had been kept."""
    renamed: dict[int, int] = {ROOT: ROOT}
    tokens: list[int] = []
    parents: list[int] = []
    for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
        if parent in renamed and float(draft.laws[parent][token]) >= 0.4:
            renamed[node] = len(tokens)
            tokens.append(token)
            parents.append(renamed[parent])
    original = {new: old for old, new in renamed.items()}
    kept_laws = {renamed[node]: law for node, law in draft.laws.items() if node in renamed}
    smaller = Draft(tuple(tokens), tuple(parents), kept_laws, draft.selection)
    verdict = RULES["rrs"].verify(smaller, _Renamed(laws, original), chance)
    return Verdict(tuple(original[node] for node in verdict.path), verdict.token)


class _Renamed:
    def __init__(self, laws: TargetLaws, original: dict[int, int]) -> None:
        self._laws, self._original = laws, original

    def row(self, node: int) -> Array:
        return self._laws.row(self._original[node])

    def rows(self, nodes: Sequence[int]) -> Array:
        return self._laws.rows([self._original[node] for node in nodes])

    def draw(self, node: int, chance: Chance) -> Any:
        return self._laws.draw(self._original[node], chance)


def _best_row(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """Every root-to-leaf row draws its own target tokens; the row with the most matches wins."""
    best = Verdict((), -1)
    for row, leaf in enumerate(node for node in range(len(draft)) if node not in draft.children):
        path: list[int] = []
        for depth, node in enumerate((*draft.nodes_to(leaf), None)):
            token = int(
                chance.draw(
                    laws.row(path[-1] if path else ROOT), Purpose.REPLACEMENT, 10 * row + depth
                )
            )
            if node is None or token != draft.tokens[node]:
                break
            path.append(node)
        if best.token < 0 or len(path) > len(best.path):
            best = Verdict(tuple(path), token)
    return best


def _whole_law_residual(draft: Draft, laws: TargetLaws, chance: Chance) -> Verdict:
    """greedy_k whose residual subtracts the whole draft law instead of what is left beside the
    fixed candidates."""
    path: list[int] = []
    while True:
        node = path[-1] if path else ROOT
        law, children = laws.row(node), draft.children.get(node, ())
        if children:
            drawn = children[-1]
            token, rest = draft.tokens[drawn], sibling_law(draft, drawn, law)
            if chance.bernoulli(min(1.0, float(law[token] / rest[token])), Purpose.ACCEPT, drawn):
                path.append(drawn)
                continue
            law = residual(law, draft.laws[node])
        token = int(chance.draw(law, Purpose.REPLACEMENT, node + 1))
        child = draft.child(node, token)
        if child is None:
            return Verdict(tuple(path), token)
        path.append(child)


def _traversing(
    draft: Draft, laws: TargetLaws, chance: Chance, *, scaled: bool, sibling: SiblingLaw = _true_law
) -> Verdict:
    """Traversal with one part exchanged: whether the residual is scaled by the success probability,
    or the siblings' law."""

    def visit(node: int, success: float) -> tuple[int, Array] | None:
        law, children = laws.row(node), draft.children.get(node, ())
        for place, child in enumerate(children):
            token, q = draft.tokens[child], sibling(draft, children, place, law)
            ended = visit(child, min(1.0, success * float(law[token] / q[token])))
            if ended is not None:
                return ended
            left = np.maximum((success if scaled else 1.0) * law - q, 0.0)
            mass = float(np.maximum(success * law - q, 0.0).sum())
            if mass == 0.0:
                return None
            success, law = mass / (mass + (1.0 - success)), left / left.sum()
        return (
            (node, law) if node == ROOT or chance.bernoulli(success, Purpose.ACCEPT, node) else None
        )

    node, law = visit(ROOT, 1.0) or (ROOT, laws.row(ROOT))
    return Verdict(draft.nodes_to(node), int(chance.draw(law, Purpose.REPLACEMENT, 0)))


TREE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "siblings without replacement, law not renormalised",
        "easy to write",
        _rejecting(lambda d, nodes, i, law: _less_earlier(d, nodes, i, renormalised=False)),
        draft="without_replacement lopsided",
        natural="rrs",
    ),
    Mutant(
        "siblings without replacement judged as independent draws",
        "easy to write",
        _rejecting(lambda d, nodes, i, law: d.laws[d.parents[nodes[i]]]),
        draft="without_replacement lopsided",
        natural="rrs",
    ),
    Mutant(
        "siblings visited by probability instead of draw order",
        "trees sorted after drafting",
        _rejecting(
            lambda d, nodes, i, law: _less_earlier(d, nodes, i, renormalised=True), _by_probability
        ),
        draft="without_replacement lopsided",
        natural="rrs",
    ),
    Mutant(
        "likeliest token as a candidate, judged by target/draft",
        "top-k trees with the token rule",
        _rejecting(lambda d, nodes, i, law: _less_earlier(d, nodes, i, renormalised=True)),
        draft="top_k_plus_one [2,1]",
        natural="greedy_k",
    ),
    Mutant(
        "K-SEQ with rho = 1",
        "easy to write",
        _k_seq_with_rho_one,
        draft="iid [2,1]",
        natural="k_seq",
    ),
    Mutant(
        "sampled tree pruned by confidence",
        "reranked trees at T > 0",
        _pruned,
        draft="iid [2,1]",
        natural="rrs",
    ),
    Mutant(
        "target drawn once a row, best row wins",
        "REST, Medusa nucleus",
        _best_row,
        draft="fixed lopsided",
        natural="match",
    ),
    Mutant(
        "greedy_k, residual of the whole draft law",
        "easy to write",
        _whole_law_residual,
        draft="top_k_plus_one [2,1]",
        natural="greedy_k",
    ),
    Mutant(
        "traversal, residual not scaled",
        "vllm-ascend#7807 in kind",
        lambda d, t, c: _traversing(d, t, c, scaled=False),
        draft="without_replacement lopsided",
        natural="traversal",
    ),
    Mutant(
        "traversal, siblings' law not renormalised",
        "easy to write",
        lambda d, t, c: _traversing(
            d,
            t,
            c,
            scaled=True,
            sibling=lambda d, nodes, i, law: _less_earlier(d, nodes, i, renormalised=False),
        ),
        draft="without_replacement lopsided",
        natural="traversal",
    ),
    Mutant(
        "keys by position alone, under traversal",
        "reused noise, vllm#54282 in kind",
        RULES["traversal"].verify,
        draft="iid chain",
        natural="traversal",
        pairs=("markov",),
        by_position=True,
    ),
)

MUTANTS: tuple[Mutant, ...] = (*CHAIN_MUTANTS, *TREE_MUTANTS, *OTHER_MUTANTS)
