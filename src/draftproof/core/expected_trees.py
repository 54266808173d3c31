"""Expected tokens of one round over a tree, written without the rules' code: what the enumerated
round must reproduce.

Top-down rules: at a node with children in places 1..k, a(j, x) is the probability that the child in
place j is accepted and is token x; then E = 1 + sum over accepted nodes, by recursion, because what
hangs under a child is drawn independently of why it was accepted. `traversal` has no such form:
every tree that can be drawn is gone through, and each node's chance to be the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from draftproof.core.expected_chains import Vector
from draftproof.core.records import ROOT, Selection

Law = Callable[[tuple[int, ...]], Vector]
Places = Callable[[int], tuple[int, ...]]
Siblings = Callable[[Vector, Vector, int], Vector]
"""(p, q, k) -> a [k, vocab]: the probability that the child in place j is the accepted one and is
token x. p, q: the laws [vocab] of target and draft."""

Tokens = Callable[[Selection, Places, Law, Law, frozenset[int]], float]
"""(selection, children of a node of the shape, target law and draft law after a path, end tokens)
-> expected tokens."""


def from_the_top(siblings: dict[Selection, Siblings]) -> Tokens:
    """Of a rule that goes down from a node to its accepted child. siblings: for every selection it
    verifies."""

    def expected(
        selection: Selection, places: Places, p: Law, q: Law, ends: frozenset[int]
    ) -> float:
        def below(node: int, path: tuple[int, ...]) -> float:
            children = places(node)
            if not children:
                return 0.0
            total = 0.0
            for child, masses in zip(
                children, siblings[selection](p(path), q(path), len(children)), strict=True
            ):
                for token in np.flatnonzero(masses):
                    if int(token) not in ends:
                        total += masses[token] * (1.0 + below(child, (*path, int(token))))
            return total

        return 1.0 + below(ROOT, ())

    return expected


def fixed(p: Vector, q: Vector, k: int) -> Vector:
    """The draft's k likeliest tokens, each accepted when the target draws it."""
    a = np.zeros((k, len(p)))
    for place, token in enumerate(_top(q, k)):
        a[place, token] = p[token]
    return a


def constants_and_one(accept: Callable[[Vector, Vector], Vector]) -> Siblings:
    """The k - 1 likeliest tokens, and one drawn from the rest, accepted with the masses accept(p,
    rest) [vocab]."""

    def siblings(p: Vector, q: Vector, k: int) -> Vector:
        a = np.zeros((k, len(p)))
        top = _top(q, k - 1)
        for place, token in enumerate(top):
            a[place, token] = p[token]
        rest = np.where(np.isin(np.arange(len(q)), top), 0.0, q)
        if rest.sum() > 0:
            a[len(top)] = accept(p, rest / rest.sum())
        return a

    return siblings


def rrs_iid(p: Vector, q: Vector, k: int) -> Vector:
    rows, tried = [], 1.0
    for _ in range(k):
        accepted = np.minimum(p, q)
        rows.append(tried * accepted)
        tried *= 1.0 - accepted.sum()
        left = np.clip(p - q, 0.0, None)
        p = left / left.sum() if left.sum() > 0 else p
    return np.array(rows)


def k_seq(p: Vector, q: Vector, k: int) -> Vector:
    def surplus(rho: float) -> float:
        beta = np.minimum(q, p / rho).sum()
        return float(1 - (1 - beta) ** k - rho * beta)

    low, high = 1.0, float(k)
    rho = low
    if surplus(low) > 0:
        for _ in range(100):
            rho = (low * high) ** 0.5
            low, high = (rho, high) if surplus(rho) > 0 else (low, rho)
    accepted = np.minimum(q, p / rho)
    return np.array([(1 - accepted.sum()) ** place * accepted for place in range(k)])


def match_iid(p: Vector, q: Vector, k: int) -> Vector:
    return np.array([p * q * (1 - q) ** place for place in range(k)])


def match_in_turn(p: Vector, q: Vector, k: int) -> Vector:
    """Siblings without replacement, each accepted when the target draws it."""
    a = np.zeros((k, len(p)))

    def place(drawn: tuple[int, ...], chance: float) -> None:
        law = _left(q, drawn)
        if len(drawn) == k or law is None:
            return
        a[len(drawn)] += chance * law * p
        for token in np.flatnonzero(law):
            place((*drawn, int(token)), chance * law[token])

    place((), 1.0)
    return a


def rrs_in_turn(p: Vector, q: Vector, k: int) -> Vector:
    """Siblings without replacement, each accepted with what target and draft law have in common,
    else both go on with what is left of them."""
    a = np.zeros((k, len(p)))

    def place(p: Vector, drawn: tuple[int, ...], chance: float) -> None:
        law = _left(q, drawn)
        if len(drawn) == k or law is None or chance == 0:
            return
        a[len(drawn)] += chance * np.minimum(p, law)
        after, rejected = np.clip(p - law, 0.0, None), np.clip(law - p, 0.0, None)
        if after.sum() > 0:
            for token in np.flatnonzero(rejected):
                place(after / after.sum(), (*drawn, int(token)), chance * rejected[token])

    place(p, (), 1.0)
    return a


def _left(q: Vector, drawn: tuple[int, ...]) -> Vector | None:
    """`q` without the tokens drawn, normalised; None where nothing is left."""
    left = np.where(np.isin(np.arange(len(q)), drawn), 0.0, q)
    return left / left.sum() if left.sum() > 0 else None


def _top(q: Vector, k: int) -> list[int]:
    return [
        int(token) for token in sorted(range(len(q)), key=lambda x: (-q[x], x))[:k] if q[token] > 0
    ]


def draws(selection: str, q: Vector, k: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every tuple of siblings that can come, with its probability."""
    if selection == "fixed":
        yield tuple(_top(q, k)), 1.0
        return

    def more(drawn: tuple[int, ...], chance: float) -> Iterator[tuple[tuple[int, ...], float]]:
        left = q if selection == "iid" else np.where(np.isin(np.arange(len(q)), drawn), 0.0, q)
        if len(drawn) == k or left.sum() == 0:
            yield drawn, chance
            return
        for token in np.flatnonzero(left):
            yield from more((*drawn, int(token)), chance * left[token] / left.sum())

    yield from more((), 1.0)


Tree = tuple[tuple[int, "Tree"], ...]
"""Siblings in draw order, each a token and what hangs under it."""


def by_every_tree(
    selection: Selection, places: Places, p: Law, q: Law, ends: frozenset[int]
) -> float:
    """Traversal's expected tokens: over every tree, over every node, (chance that the round ends
    there) x (tokens emitted)."""

    def trees(node: int, path: tuple[int, ...]) -> Iterator[tuple[Tree, float]]:
        children = places(node)
        if not children or ends.intersection(path):
            yield (), 1.0
            return
        for tokens, chance in draws(selection, q(path), len(children)):
            under = [
                list(trees(child, (*path, token)))
                for child, token in zip(children, tokens, strict=False)
            ]
            for hung, mass in _products(under):
                yield tuple(zip(tokens, hung, strict=True)), chance * mass

    total = 0.0
    for tree, mass in trees(ROOT, ()):
        ends_at = _end_chances(selection, tree, (), 1.0, p, q, ends)
        total += mass * sum(chance * _emitted(path, ends) for path, chance in ends_at)
    return total


def _products(options: list[list[tuple[Tree, float]]]) -> Iterator[tuple[tuple[Tree, ...], float]]:
    if not options:
        yield (), 1.0
        return
    for tree, chance in options[0]:
        for rest, mass in _products(options[1:]):
            yield (tree, *rest), chance * mass


def _end_chances(
    selection: str,
    siblings: Tree,
    path: tuple[int, ...],
    visit: float,
    p: Any,
    q: Any,
    ends: frozenset[int],
) -> list[tuple[tuple[int, ...], float]]:
    """(path at whose end the round ends, chance) given that a node is visited with success
    probability `visit`."""
    if ends.intersection(path):
        return [(path, visit)]
    law, drafted = p(path), q(path)
    found: list[tuple[tuple[int, ...], float]] = []
    still, success = 1.0, visit
    drawn: list[int] = []
    for token, hung in siblings:
        source = (
            np.where(np.isin(np.arange(len(drafted)), drawn), 0.0, drafted)
            if selection != "iid"
            else drafted
        )
        source = np.eye(len(law))[token] if selection == "fixed" else source / source.sum()
        reach = min(1.0, success * law[token] / source[token])
        inside = (
            _end_chances(selection, hung, (*path, token), reach, p, q, ends) if reach > 0 else []
        )
        found += [(end, still * chance) for end, chance in inside]
        still *= 1.0 - sum(chance for _, chance in inside)
        left = np.clip(success * law - source, 0.0, None)
        if left.sum() == 0:
            return found
        success, law = left.sum() / (left.sum() + (1.0 - success)), left / left.sum()
        drawn.append(token)
    return [*found, (path, still * success)]


def _emitted(path: tuple[int, ...], ends: frozenset[int]) -> int:
    """Tokens that leave a round accepted along `path`: one more than accepted, nothing after an end
    token."""
    return next((i + 1 for i, token in enumerate(path) if token in ends), len(path) + 1)
