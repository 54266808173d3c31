"""The drafts on which the rules that are proven in proofs/ and the rules that run are held against
each other.

A case is a rule, a drafted tree with the laws it was drawn from, and the target's laws along it;
its law is the probability of every verdict (accepted tokens, token after them) for that draft. The
laws are those of the enumeration's toys in 64ths, which double precision holds exactly. Coq's
answers are kept as fractions in tests/exact/proven_laws.json, made by `tools/theorem.py`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftproof.audit.toys import VOCAB, pairs
from draftproof.core.chance import Chance
from draftproof.core.enumerate import outcomes
from draftproof.core.records import ROOT, Draft, Selection, Verdict
from draftproof.core.rules.protocol import TargetLaws

KEPT = Path(__file__).parent.parent / "tests" / "exact" / "proven_laws.json"
PARTS = 64
CONTEXT = (0, 1, 0)
TREE_RULES: dict[Selection, tuple[str, ...]] = {
    "fixed": ("match", "rrs", "greedy_k", "traversal"),
    "iid": ("match", "rrs", "k_seq", "traversal"),
    "without_replacement": ("match", "rrs", "traversal"),
    "top_k_plus_one": ("match", "greedy_k"),
}
"""The rules in proofs/ by what they verify there; `k_seq` with fixed candidates is `match` in the
code."""

Row = tuple[int, ...]
Law = dict[tuple[tuple[int, ...], int], Fraction]
Verify = Callable[[Draft, TargetLaws, Chance], Verdict]


@dataclass(frozen=True)
class Case:
    """target, drafted: node -> its law in 64ths, of the token after it and of the draw of its
    children."""

    rule: str
    selection: Selection
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    target: dict[int, Row]
    drafted: dict[int, Row]

    def draft(self) -> Draft:
        """The draft as rules see it."""
        laws = (
            {}
            if self.selection == "fixed"
            else {node: as_law(row) for node, row in self.drafted.items()}
        )
        return Draft(self.tokens, self.parents, laws, self.selection)


@dataclass(frozen=True)
class CaseLaws:
    """The target's laws of one case, for rules."""

    case: Case

    def row(self, node: int) -> NDArray[np.float64]:
        return as_law(self.case.target[node])

    def rows(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        return np.stack([self.row(node) for node in nodes])

    def draw(self, node: int, chance: Chance) -> Any:
        depth = 0 if node == ROOT else len(self.case.draft().nodes_to(node))
        return chance.draw_target(self.row(node), depth)


def as_law(row: Row) -> NDArray[np.float64]:
    """A law [vocab] from its 64ths, without rounding."""
    return np.array(row) / PARTS


def in_parts(law: NDArray[np.float64]) -> Row:
    """The law in 64ths that sum to 64: rounded down, what is missing given to the largest
    remainders."""
    whole = np.floor(law * PARTS).astype(int)
    order = np.argsort(-(law * PARTS - whole), kind="stable")
    whole[order[: PARTS - whole.sum()]] += 1
    return tuple(int(part) for part in whole)


def law_of(verify: Verify, case: Case) -> dict[tuple[tuple[int, ...], int], float]:
    """The probability of every verdict under the rule that runs, by walking every outcome of its
    draws."""
    draft, laws = case.draft(), CaseLaws(case)
    law: dict[tuple[tuple[int, ...], int], float] = defaultdict(float)
    for outcome, verdict in outcomes(
        lambda chance: verify(draft, laws, chance), start=len(CONTEXT)
    ):
        law[tuple(draft.tokens[node] for node in verdict.path), verdict.token] += (
            outcome.probability
        )
    return dict(law)


def difference(law: dict[tuple[tuple[int, ...], int], float], proven: Law) -> float:
    """The largest difference between two laws, over verdicts."""
    return max(
        abs(law.get(key, 0.0) - float(proven.get(key, Fraction(0)))) for key in {*law, *proven}
    )


def cases() -> Iterator[Case]:
    """Every chain of one to three drafts under `token` and `block`, and trees of two siblings with
    a child each."""
    for pair in (pair for pair in pairs().values() if pair.target.vocab_size == VOCAB):
        for selection, longest in (("iid", 3), ("fixed", 2)):
            for length in range(1, longest + 1):
                for tokens in product(range(VOCAB), repeat=length):
                    parents = tuple(range(-1, length - 1))
                    yield from _cases(pair, ("token", "block"), selection, tokens, parents)
        for selection in TREE_RULES:
            for first, second in _siblings(selection, pair):
                tokens = (
                    first,
                    second,
                    *(_below(selection, pair, token) for token in (first, second)),
                )
                yield from _cases(
                    pair, TREE_RULES[selection], selection, tokens, (ROOT, ROOT, 0, 1)
                )


def _cases(
    pair: Any,
    rules: Sequence[str],
    selection: Any,
    tokens: tuple[int, ...],
    parents: tuple[int, ...],
) -> Iterator[Case]:
    """One draft under several rules, unless its laws could not have drawn it."""
    draft = Draft(tokens, parents, {}, selection)
    paths = {node: draft.tokens_to(node) for node in (ROOT, *range(len(tokens)))}
    target = {node: in_parts(pair.target.law((*CONTEXT, *path))) for node, path in paths.items()}
    drafted = {node: in_parts(pair.draft.law((*CONTEXT, *paths[node]))) for node in set(parents)}
    if selection == "fixed" or all(
        drafted[parent][token] for parent, token in zip(parents, tokens, strict=True)
    ):
        for rule in rules:
            yield Case(rule, selection, tokens, parents, target, drafted)


def _siblings(selection: Selection, pair: Any) -> Iterator[tuple[int, int]]:
    """Two siblings under the root: any two independent ones, two different ones, or the likeliest
    and one of the rest."""
    likeliest = int(np.argmax(in_parts(pair.draft.law(CONTEXT))))
    for first, second in product(range(VOCAB), repeat=2):
        if selection == "iid" or (
            first != second and (selection != "top_k_plus_one" or first == likeliest)
        ):
            yield first, second


def _below(selection: Selection, pair: Any, token: int) -> int:
    """The child of `token`: any that its law can draw."""
    row = in_parts(pair.draft.law((*CONTEXT, token)))
    return (token + 1) % VOCAB if row[(token + 1) % VOCAB] else int(np.argmax(row))


HEAD = """From Coq Require Import ZArith QArith Qcanon.
From mathcomp Require Import all_ssreflect all_algebra.
From draftproof Require Import chance law decoding token block tree matching rrs greedy_k.
From draftproof Require Import k_seq traversal rational run.
Set Printing Depth 1000000.
Notation "'t' n" := (nth (zero : three) [:: zero; one; two] n%nat)
  (at level 9, n at level 0, only parsing).
Notation "'w' a b c" := (in_64ths a b c)
  (at level 9, a at level 0, b at level 0, c at level 0, only parsing).
"""
CALLS = {
    name: f"{name}_rule"
    for name in ("token", "block", "match", "rrs", "greedy_k", "k_seq", "traversal")
}


def coq_text(made: Sequence[Case]) -> str:
    """A file that prints the law of every case, in order."""
    return HEAD + "\n".join(f"Eval vm_compute in shown ({_call(case)})." for case in made) + "\n"


def _call(case: Case) -> str:
    draft = case.draft()
    rows = {draft.tokens_to(node): row for node, row in case.target.items()}
    listed = "; ".join(
        f"([:: {'; '.join(f'{x}%nat' for x in path)}], {_weights(row)})"
        for path, row in rows.items()
    )
    factor = " (@division_factor _ _)" if case.rule == "k_seq" else ""
    chain = case.rule in ("token", "block")
    drafted = _chain(case, draft) if chain else _tree(case, draft, draft.children.get(ROOT, []))
    return f"{CALLS[case.rule]} (by_text [:: {listed}]){factor} [::] ({drafted})"


def _chain(case: Case, draft: Draft) -> str:
    return (
        "[:: "
        + "; ".join(
            f"({_source(case, draft, node, [])}, t {token})"
            for node, token in enumerate(case.tokens)
        )
        + "]"
    )


def _tree(case: Case, draft: Draft, siblings: Sequence[int], earlier: Sequence[int] = ()) -> str:
    """Siblings and what is below them. In the proofs the drawn one of top_k_plus_one stands before
    the guessed ones."""
    if not siblings:
        return "Bare"
    drawn_last = case.selection == "top_k_plus_one" and not earlier
    first, *others = [siblings[-1], *siblings[:-1]] if drawn_last else siblings
    guessed = case.selection == "top_k_plus_one" and not drawn_last
    source = (
        f"@one_hot _ three (t {case.tokens[first]})"
        if guessed
        else _source(case, draft, first, others if drawn_last else earlier)
    )
    below = _tree(case, draft, draft.children.get(first, []))
    return (
        f"Child ({source}) (t {case.tokens[first]}) ({below}) "
        f"({_tree(case, draft, others, [*earlier, first])})"
    )


def _source(case: Case, draft: Draft, node: int, removed: Sequence[int]) -> str:
    """The law that a node was drawn from."""
    if case.selection == "fixed":
        return f"@one_hot _ three (t {case.tokens[node]})"
    row = _weights(case.drafted[case.parents[node]])
    if case.selection == "iid":
        return row
    return (
        f"normalised (without ({row}) [:: "
        f"{'; '.join(f't {case.tokens[other]}' for other in removed)}])"
    )


def _weights(row: Row) -> str:
    return "w " + " ".join(map(str, row))


PRINTED = re.compile(r"^     = (.*?)\n     : seq", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"\(\s*\[::([^\]]*)\], (\d+), \((-?\d+), (\d+)\)\)")


def laws_printed(output: str) -> list[Law]:
    """What Coq printed for every case."""
    laws = []
    for text in PRINTED.findall(output):
        law: Law = defaultdict(Fraction)
        plain = re.sub(r"\s+", " ", re.sub(r"%\w+", "", text))
        for path, token, above, below in ENTRY.findall(plain):
            accepted = tuple(int(word) for word in path.split(";") if word.strip())
            law[accepted, int(token)] += Fraction(int(above), int(below))
        laws.append(dict(law))
    return laws


def kept_text(made: Sequence[Case], laws: Sequence[Law]) -> str:
    """The kept file: a case a line."""
    lines = []
    for case, law in zip(made, laws, strict=True):
        proven = [[list(path), token, str(mass)] for (path, token), mass in sorted(law.items())]
        target, drafted = (
            [[node, list(row)] for node, row in sorted(rows.items())]
            for rows in (case.target, case.drafted)
        )
        lines.append(
            json.dumps(
                [case.rule, case.selection, case.tokens, case.parents, target, drafted, proven]
            )
        )
    return "[\n" + ",\n".join(lines) + "\n]\n"


def kept() -> list[tuple[Case, Law]]:
    """The kept cases and the laws proven for them."""
    found = []
    for rule, selection, tokens, parents, target, drafted, proven in json.loads(
        KEPT.read_text(encoding="utf-8")
    ):
        rows = ({node: tuple(row) for node, row in laws} for laws in (target, drafted))
        law = {(tuple(path), token): Fraction(mass) for path, token, mass in proven}
        found.append((Case(rule, selection, tuple(tokens), tuple(parents), *rows), law))
    return found
