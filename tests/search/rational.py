"""Verification in exact fractions: the rules written again from their papers, the texts that rounds
of them make, and what sampling parameters make of a law. Nothing is imported from the package.

A law is a tuple of fractions that sum to 1, or of weights that need not. Where a rule of the
package works on arrays in double precision, its twin here gives the probability of every verdict
for one draft; equal fractions are equal, so nothing is compared up to a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

ROOT = -1
ZERO, ONE = Fraction(0), Fraction(1)
Law = tuple[Fraction, ...]
Tokens = tuple[int, ...]
Verdicts = dict[tuple[Tokens, int], Fraction]
"""(accepted tokens, the token after them) -> probability."""
Table = Callable[[Tokens], Law]
"""prefix -> the law of the token after it."""


def scaled(weights: Sequence[Fraction]) -> Law:
    total = sum(weights, ZERO)
    return tuple(weight / total for weight in weights)


def positive(p: Law, q: Law) -> Law:
    """(p - q)_+, not scaled."""
    return tuple(max(a - b, ZERO) for a, b in zip(p, q, strict=True))


def common(p: Law, q: Law) -> Law:
    return tuple(map(min, p, q))


def one_hot(token: int, size: int) -> Law:
    return tuple(ONE if other == token else ZERO for other in range(size))


@dataclass(frozen=True)
class Tree:
    """A draft: node i has the token tokens[i] and stands below parents[i], siblings in draw order.
    target, drafted: the laws after a node, of the target and of the draw of its children."""

    selection: str
    tokens: Tokens
    parents: tuple[int, ...]
    target: Mapping[int, Law]
    drafted: Mapping[int, Law]

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        nodes = range(len(self.tokens))
        return {
            parent: tuple(node for node in nodes if self.parents[node] == parent)
            for parent in (ROOT, *nodes)
        }

    def path(self, node: int) -> Tokens:
        return () if node == ROOT else (*self.path(self.parents[node]), self.tokens[node])

    def law_of(self, child: int) -> Law:
        """The law that `child` was drawn from, given the siblings that were drawn before it."""
        parent = self.parents[child]
        siblings, law = self.children[parent], self.drafted[parent]
        if self.selection == "fixed":
            return one_hot(self.tokens[child], len(law))
        before = {
            "iid": (),
            "without_replacement": siblings[: siblings.index(child)],
            "top_k_plus_one": siblings[:-1],
        }[self.selection]
        gone = {self.tokens[node] for node in before}
        return scaled([ZERO if token in gone else mass for token, mass in enumerate(law)])


def add(verdicts: Verdicts, path: Tokens, law: Law, chance: Fraction) -> None:
    """`chance` of having accepted `path`, the token after it by `law`."""
    for token, mass in enumerate(law):
        if chance * mass:
            verdicts[path, token] = verdicts.get((path, token), ZERO) + chance * mass


def token(tree: Tree) -> Verdicts:
    """Leviathan et al., 2211.17192, algorithm 1."""
    found: Verdicts = {}
    reached = ONE
    for node, drafted in enumerate(tree.tokens):
        p, q = tree.target[node - 1], tree.law_of(node)
        accepted = min(ONE, p[drafted] / q[drafted])
        if accepted < 1:
            add(found, tree.tokens[:node], scaled(positive(p, q)), reached * (1 - accepted))
        reached *= accepted
    add(found, tree.tokens, tree.target[len(tree.tokens) - 1], reached)
    return found


def block(tree: Tree) -> Verdicts:
    """Sun et al., 2403.10444, algorithm 2: the longest block whose trial succeeds is kept."""
    found: Verdicts = {}
    joint = [ONE]
    for node, drafted in enumerate(tree.tokens):
        ratio = tree.target[node - 1][drafted] / tree.law_of(node)[drafted]
        joint.append(min(ONE, joint[-1] * ratio))
    add(found, tree.tokens, tree.target[len(tree.tokens) - 1], joint[-1])
    left = 1 - joint[-1]
    for node in reversed(range(len(tree.tokens))):
        p = tuple(joint[node] * mass for mass in tree.target[node - 1])
        rest = positive(p, tree.law_of(node))
        bound = sum(rest) + 1 - joint[node]
        success = sum(rest) / bound if bound else ONE
        if left * success:
            add(found, tree.tokens[:node], scaled(rest), left * success)
        left *= 1 - success
    return found


Trial = Callable[[Tree, int], tuple[dict[int, Fraction], Law, Fraction]]
"""(tree, node) -> the chance of each child to be accepted, the law of the token if none is, and the
chance of that."""


def down(trial: Trial, tree: Tree) -> Verdicts:
    """A walk from the root that goes on below an accepted child."""
    found: Verdicts = {}

    def visit(node: int, chance: Fraction) -> None:
        accepted, law, rejected = trial(tree, node)
        if rejected:
            add(found, tree.path(node), law, chance * rejected)
        for child, mass in accepted.items():
            if mass:
                visit(child, chance * mass)

    visit(ROOT, ONE)
    return found


def looked_up(tree: Tree, node: int, law: Law) -> tuple[dict[int, Fraction], Law, Fraction]:
    """The token comes from `law`; where a child has it, that child is accepted."""
    first: dict[int, int] = {}
    for child in tree.children[node]:
        first.setdefault(tree.tokens[child], child)
    rest = tuple(ZERO if token in first else mass for token, mass in enumerate(law))
    missed = sum(rest, ZERO)
    return (
        {child: law[drafted] for drafted, child in first.items()},
        scaled(rest) if missed else law,
        missed,
    )


def match_trial(tree: Tree, node: int) -> tuple[dict[int, Fraction], Law, Fraction]:
    return looked_up(tree, node, tree.target[node])


def rrs_trial(tree: Tree, node: int) -> tuple[dict[int, Fraction], Law, Fraction]:
    """Miao et al., 2305.09781, section 4.3; without replacement Chen et al., 2402.12374."""
    law, left, accepted = tree.target[node], ONE, {}
    for child in tree.children[node]:
        drafted, q = tree.tokens[child], tree.law_of(child)
        chance = min(ONE, law[drafted] / q[drafted])
        accepted[child] = left * chance
        left *= 1 - chance
        if not left:
            break
        law = scaled(positive(law, q))
    return accepted, law, left


def greedy_k_trial(tree: Tree, node: int) -> tuple[dict[int, Fraction], Law, Fraction]:
    """Hu et al., 2502.18779, section 3: the last sibling was drawn, the others are constants."""
    children, law = tree.children[node], tree.target[node]
    if not children or tree.selection == "fixed":
        return looked_up(tree, node, law)
    drawn, q = children[-1], tree.law_of(children[-1])
    chance = min(ONE, law[tree.tokens[drawn]] / q[tree.tokens[drawn]])
    if chance == 1:
        return {drawn: ONE}, law, ZERO
    others, rest, missed = looked_up(tree, node, scaled(positive(law, q)))
    accepted = {child: (1 - chance) * mass for child, mass in others.items()}
    accepted[drawn] = accepted.get(drawn, ZERO) + chance
    return accepted, rest, (1 - chance) * missed


def k_seq_trial(
    tree: Tree, node: int, factor: Callable[[Law, Law, int], Fraction]
) -> tuple[dict[int, Fraction], Law, Fraction]:
    """Sun et al., 2310.15141, algorithm 2. factor: rho, by the laws and the number of siblings."""
    children, law = tree.children[node], tree.target[node]
    if not children:
        return {}, law, ONE
    q = tree.drafted[node]
    rho = factor(law, q, len(children))
    taken = common(q, tuple(mass / rho for mass in law))
    beta, left, accepted = sum(taken, ZERO), ONE, {}
    for child in children:
        drafted = tree.tokens[child]
        chance = min(ONE, law[drafted] / (rho * q[drafted]))
        accepted[child] = left * chance
        left *= 1 - chance
    if not left:
        return accepted, law, left
    if not beta:
        return accepted, law, left
    share = (1 - (1 - beta) ** len(children)) / beta
    rest = [mass - part * share for mass, part in zip(law, taken, strict=True)]
    assert min(rest) >= 0, "rho is too small"
    return accepted, scaled(rest), left


def division_factor(p: Law, q: Law, k: int, steps: int = 40) -> Fraction:
    """A rho for `k_seq` that fits, at most 2^-steps k above the least."""

    def fits(rho: Fraction) -> bool:
        beta = sum(common(q, tuple(mass / rho for mass in p)), ZERO)
        return 1 - (1 - beta) ** k <= rho * beta

    low, high = ONE, Fraction(k)
    if fits(low):
        return low
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def traversal(tree: Tree) -> Verdicts:
    """Weng et al., 2505.12398: from the leaves to the root."""
    found: Verdicts = {}

    def visit(node: int, reach: Fraction, chance: Fraction) -> Fraction:
        """Books what ends below `node`, which is reached with `chance` and should succeed with
        `reach`; the chance that all of it fails."""
        law, success, alive = tree.target[node], reach, chance
        for child in tree.children[node]:
            drafted, q = tree.tokens[child], tree.law_of(child)
            below = min(ONE, success * law[drafted] / q[drafted])
            alive = visit(child, below, alive) if below else alive
            rest = positive(tuple(success * mass for mass in law), q)
            mass = sum(rest, ZERO)
            if not mass:
                return alive
            success, law = mass / (mass + 1 - success), scaled(rest)
        add(found, tree.path(node), law, alive * success)
        return alive * (1 - success)

    assert visit(ROOT, ONE, ONE) == 0, "the root must not fail"
    return found


RULES: dict[str, Callable[[Tree], Verdicts]] = {
    "token": token,
    "block": block,
    "match": lambda tree: down(match_trial, tree),
    "rrs": lambda tree: down(rrs_trial, tree),
    "greedy_k": lambda tree: down(greedy_k_trial, tree),
    "k_seq": lambda tree: down(lambda t, node: k_seq_trial(t, node, division_factor), tree),
    "traversal": traversal,
}


def draws(selection: str, law: Law, count: int) -> Iterator[tuple[Tokens, Fraction]]:
    """Every way to get `count` siblings from `law`, with its chance; fewer where `law` has fewer
    tokens to give."""
    best = sorted(range(len(law)), key=lambda token: (-law[token], token))
    if selection == "fixed":
        yield tuple(best[:count]), ONE
        return
    constants = tuple(best[: count - 1]) if selection == "top_k_plus_one" else ()

    def more(drawn: Tokens, chance: Fraction) -> Iterator[tuple[Tokens, Fraction]]:
        gone = () if selection == "iid" else drawn
        left = [ZERO if token in gone else mass for token, mass in enumerate(law)]
        if len(drawn) == count or not any(left):
            yield drawn, chance
            return
        for token, mass in enumerate(scaled(left)):
            if mass:
                yield from more((*drawn, token), chance * mass)

    yield from more(constants, ONE)


def drafts(
    selection: str, widths: Sequence[int], target: Table, drafted: Table, context: Tokens
) -> Iterator[tuple[Tree, Fraction]]:
    """Every tree of these widths, level by level, that may be drafted after `context`."""

    def level(
        tokens: Tokens, parents: tuple[int, ...], above: tuple[int, ...], left: Sequence[int]
    ) -> Iterator[tuple[Tokens, tuple[int, ...], Fraction]]:
        if not left or not above:
            yield tokens, parents, ONE
            return
        paths = Tree(selection, tokens, parents, {}, {})
        grown = [(tokens, parents, ONE)]
        for node in above:
            law = drafted(context + paths.path(node))
            grown = [
                ((*t, *drawn), (*up, *(node for _ in drawn)), chance * share)
                for t, up, chance in grown
                for drawn, share in draws(selection, law, left[0])
            ]
        for t, up, chance in grown:
            for all_tokens, all_parents, share in level(
                t, up, tuple(range(len(tokens), len(t))), left[1:]
            ):
                yield all_tokens, all_parents, chance * share

    for tokens, parents, chance in level((), (), (ROOT,), widths):
        paths = Tree(selection, tokens, parents, {}, {})
        after = {node: context + paths.path(node) for node in (ROOT, *range(len(tokens)))}
        laws = {node: target(prefix) for node, prefix in after.items()}
        given = {node: drafted(after[node]) for node in {ROOT, *parents}}
        yield Tree(selection, tokens, parents, laws, given), chance


def texts(
    rule: str,
    selection: str,
    widths: Sequence[int],
    target: Table,
    drafted: Table,
    prompt: Tokens,
    length: int,
) -> dict[Tokens, Fraction]:
    """The law of the first `length` tokens that rounds of `rule` make."""
    law: dict[Tokens, Fraction] = {}
    waiting = {(): ONE}
    while waiting:
        text, mass = waiting.popitem()
        for tree, chance in drafts(selection, widths, target, drafted, prompt + text):
            for (path, last), share in RULES[rule](tree).items():
                longer = (text + path + (last,))[:length]
                into = law if len(longer) == length else waiting
                into[longer] = into.get(longer, ZERO) + mass * chance * share
    return law


def plain_texts(target: Table, prompt: Tokens, length: int) -> dict[Tokens, Fraction]:
    """The target's own law of the first `length` tokens."""
    law = {(): ONE}
    for _ in range(length):
        law = {
            (*text, token): mass * share
            for text, mass in law.items()
            for token, share in enumerate(target(prompt + text))
            if share
        }
    return law
