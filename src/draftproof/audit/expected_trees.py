"""Expected tokens of one round over a tree, written without the rules' code: what the enumerated round must reproduce.

Top-down rules: at a node with children in places 1..k, a(j, x) is the probability that the child in place j is accepted and is
token x; then E = 1 + sum over accepted nodes, by recursion, because what hangs under a child is drawn independently of why it
was accepted. `traversal` has no such form: every tree that can be drawn is gone through, and each node's chance to be the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.kinds import GuessedKind
from draftproof.core.records import ROOT

if TYPE_CHECKING:
    from draftproof.audit.drafting import TreeKind

Vector = NDArray[np.float64]
LawOf = Callable[[tuple[int, ...], tuple[int, ...]], Vector]


def expected_tokens_of_tree(
    rule: str, kind: TreeKind, target_law: LawOf, context: tuple[int, ...], depth: int, ends: frozenset[int]
) -> float:
    """Expected emitted tokens of the round after `context`, trees cut to `depth` levels; nothing follows a token of `ends`."""
    if isinstance(kind, GuessedKind):
        return _of_guesses(kind, target_law, context, depth, ends)
    shape, levels = kind.shape, kind.shape.levels[: max(depth, 0)]
    allowed = {node for level in levels for node in level}

    def p(path: tuple[int, ...]) -> Vector:
        return target_law(context, path)

    def q(path: tuple[int, ...]) -> Vector:
        return np.asarray(kind.plan(context, path), dtype=np.float64)

    def places(node: int) -> tuple[int, ...]:
        return tuple(child for child in shape.children.get(node, ()) if child in allowed)

    if rule == "traversal":
        return _by_every_tree(kind.selection, places, p, q, ends)
    accept = partial(accepted_children, rule, kind.selection)

    def below(node: int, path: tuple[int, ...]) -> float:
        children = places(node)
        if not children:
            return 0.0
        total = 0.0
        for child, masses in zip(children, accept(p(path), q(path), len(children)), strict=True):
            for token in np.flatnonzero(masses):
                if int(token) not in ends:
                    total += masses[token] * (1.0 + below(child, (*path, int(token))))
        return total

    return 1.0 + below(ROOT, ())


def _of_guesses(kind: GuessedKind, target_law: LawOf, context: tuple[int, ...], depth: int, ends: frozenset[int]) -> float:
    """Every rule takes the candidates of a guessed tree one after another: each path is kept with its own probability."""
    paths = [path for path in kind.paths(context, depth) if not ends.intersection(path)] if depth > 0 else []
    return 1.0 + sum(float(np.prod([target_law(context, path[:i])[token] for i, token in enumerate(path)])) for path in paths)


def accepted_children(rule: str, selection: str, p: Vector, q: Vector, k: int) -> Vector:
    """a [k, vocab]: the probability that the child in place j is the accepted one and is token x.

    rule: "match" or "gumbel" (enumerated with independent draws), "rrs", "k_seq", "greedy_k". p, q: laws [vocab]."""
    a = np.zeros((k, len(p)))
    if selection == "fixed":
        for place, token in enumerate(_top(q, k)):
            a[place, token] = p[token]
    elif selection == "top_k_plus_one":
        top = _top(q, k - 1)
        rest = np.where(np.isin(np.arange(len(q)), top), 0.0, q)
        for place, token in enumerate(top):
            a[place, token] = p[token]
        if rest.sum() > 0:
            rest = rest / rest.sum()
            a[len(top)] = np.minimum(p, rest) if rule == "greedy_k" else p * rest
    elif selection == "iid":
        a = {"rrs": _rrs_iid, "k_seq": _k_seq, "match": _match_iid, "gumbel": _match_iid}[rule](p, q, k)
    else:
        _without_replacement(rule, p, q, (), 1.0, a)
    return a


def _rrs_iid(p: Vector, q: Vector, k: int) -> Vector:
    rows, tried = [], 1.0
    for _ in range(k):
        accepted = np.minimum(p, q)
        rows.append(tried * accepted)
        tried *= 1.0 - accepted.sum()
        left = np.clip(p - q, 0.0, None)
        p = left / left.sum() if left.sum() > 0 else p
    return np.array(rows)


def _k_seq(p: Vector, q: Vector, k: int) -> Vector:
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


def _match_iid(p: Vector, q: Vector, k: int) -> Vector:
    return np.array([p * q * (1 - q) ** place for place in range(k)])


def _without_replacement(rule: str, p: Vector, q: Vector, drawn: tuple[int, ...], chance: float, a: Vector) -> None:
    """Adds to `a` what the place after `drawn` accepts, then goes through the tokens that may be drawn there and not accepted.

    rrs: `p` is the law the rejections left and `chance` that they happened. match: `p` never changes, `chance` is that of the
    draws alone."""
    place = len(drawn)
    if place == len(a):
        return
    left = np.where(np.isin(np.arange(len(q)), drawn), 0.0, q)
    if left.sum() == 0 or chance == 0:
        return
    law = left / left.sum()
    if rule != "rrs":
        a[place] += chance * law * p
        for token in np.flatnonzero(law):
            _without_replacement(rule, p, q, (*drawn, int(token)), chance * law[token], a)
        return
    a[place] += chance * np.minimum(p, law)
    after = np.clip(p - law, 0.0, None)
    rejected = np.clip(law - p, 0.0, None)
    if after.sum() > 0:
        for token in np.flatnonzero(rejected):
            _without_replacement(rule, after / after.sum(), q, (*drawn, int(token)), chance * rejected[token], a)


def _top(q: Vector, k: int) -> list[int]:
    return [int(token) for token in sorted(range(len(q)), key=lambda x: (-q[x], x))[:k] if q[token] > 0]


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


def _by_every_tree(selection: str, places: Any, p: Any, q: Any, ends: frozenset[int]) -> float:
    """Traversal's expected tokens: over every tree, over every node, (chance that the round ends there) x (tokens emitted)."""

    def trees(node: int, path: tuple[int, ...]) -> Iterator[tuple[Tree, float]]:
        children = places(node)
        if not children or ends.intersection(path):
            yield (), 1.0
            return
        for tokens, chance in draws(selection, q(path), len(children)):
            under = [list(trees(child, (*path, token))) for child, token in zip(children, tokens, strict=False)]
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
    selection: str, siblings: Tree, path: tuple[int, ...], visit: float, p: Any, q: Any, ends: frozenset[int]
) -> list[tuple[tuple[int, ...], float]]:
    """(path at whose end the round ends, chance) given that a node is visited with success probability `visit`."""
    if ends.intersection(path):
        return [(path, visit)]
    law, drafted = p(path), q(path)
    found: list[tuple[tuple[int, ...], float]] = []
    still, success = 1.0, visit
    drawn: list[int] = []
    for token, hung in siblings:
        source = np.where(np.isin(np.arange(len(drafted)), drawn), 0.0, drafted) if selection != "iid" else drafted
        source = np.eye(len(law))[token] if selection == "fixed" else source / source.sum()
        reach = min(1.0, success * law[token] / source[token])
        inside = _end_chances(selection, hung, (*path, token), reach, p, q, ends) if reach > 0 else []
        found += [(end, still * chance) for end, chance in inside]
        still *= 1.0 - sum(chance for _, chance in inside)
        left = np.clip(success * law - source, 0.0, None)
        if left.sum() == 0:
            return found
        success, law = left.sum() / (left.sum() + (1.0 - success)), left / left.sum()
        drawn.append(token)
    return [*found, (path, still * success)]


def _emitted(path: tuple[int, ...], ends: frozenset[int]) -> int:
    """Tokens that leave a round accepted along `path`: one more than accepted, nothing after an end token."""
    return next((i + 1 for i, token in enumerate(path) if token in ends), len(path) + 1)
