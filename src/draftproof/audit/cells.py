"""Any cell of the proof by its name, and the tables beside those of chains and trees: heads,
drafters whose coming draft depends on more than the context, and lengths that adapt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product as cartesian
from multiprocessing import get_context

from draftproof.audit import heads, others
from draftproof.audit.exact import HORIZON, Case, Harness, Proof, compare, harness
from draftproof.audit.lengths import CONTROLLERS, length_harness
from draftproof.audit.table import CHAIN_RULES, PAIRS, PARAMETERS, covering_rows
from draftproof.core.rules import LOSSLESS
from draftproof.core.rules.protocol import Rule

ADAPTED = ("sampled", "greedy", "narrow", "ngram", "auto")
"""Drafts that are proven under every controller of lengths."""
ADAPTED_PARAMETERS = ("plain", "greedy", "eos", "all at once")
HEAD_PARAMETERS = ("greedy", "eos", "repetition_penalty", "bad_words_ids", "all at once")
QUICK_HEADS = ("medusa", "medusa [2,1]", "eagle greedy", "eagle tree", "eagle3 tree")
"""Kinds of heads whose plain cells take seconds, not half a minute."""


def harness_of(case: Case, rule: Rule | None = None) -> Harness:
    """The generation of any cell, ready for its first round. rule: another one than the case names,
    for mutants."""
    if case.draft in others.KINDS:
        return others.other_harness(case, rule)
    if case.draft in heads.KINDS:
        return heads.head_harness(case)
    return length_harness(case) if case.length else harness(case, rule=rule)


def prove_cell(case: Case) -> Proof:
    """Enumerate any cell and compare it with the target and the formula."""
    return compare(case, harness_of(case))


def prove_all(cases: Iterable[Case], workers: int = 1) -> Iterator[Proof]:
    """Prove cases in order, in `workers` processes."""
    if workers <= 1:
        yield from map(prove_cell, cases)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(prove_cell, cases)


def other_covering(rules: Sequence[str] = tuple(LOSSLESS)) -> list[Case]:
    """Every kind of `others` with every parameter, under the rules that take it in turn, three
    tokens deep."""
    cases = []
    for kind in others.KINDS:
        taking = [rule for rule in others.rules_of(kind) if rule in rules]
        turns = enumerate(PARAMETERS) if taking else ()
        cases += [
            _other((kind, taking[i % len(taking)]), params, PAIRS[i % len(PAIRS)], horizon=3)
            for i, params in turns
        ]
    return cases


def other_product(rules: Sequence[str] = tuple(LOSSLESS)) -> Iterator[Case]:
    """Every cell of the same."""
    for row in cartesian(_verified(rules), PARAMETERS, PAIRS):
        yield _other(*row)


def _verified(rules: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, rule) for name in others.KINDS for rule in others.rules_of(name) if rule in rules
    )


def _other(kind: tuple[str, str], params: str, pair: str, horizon: int = HORIZON) -> Case:
    name, rule = kind
    return Case(rule, name, pair, params, PARAMETERS[params], 2, horizon)


def head_covering(rules: Sequence[str] = tuple(LOSSLESS)) -> list[Case]:
    """Quick cells of heads: plain ones, and every one of HEAD_PARAMETERS with a kind of its own."""
    cases = heads.head_cases(("plain",), QUICK_HEADS)
    for turn, params in enumerate(HEAD_PARAMETERS):
        cases.append(heads.head_cases((params,), (heads.KINDS[turn + 3],))[-1])
    return [case for case in cases if case.rule in rules]


def head_product(rules: Sequence[str] = tuple(LOSSLESS)) -> Iterator[Case]:
    """Every kind of head with every parameter."""
    yield from (case for case in heads.head_cases(tuple(PARAMETERS)) if case.rule in rules)


def length_covering(rules: Sequence[str] = CHAIN_RULES) -> list[Case]:
    """Cells of lengths that adapt in which every two levels of different factors meet."""
    chains = tuple(rule for rule in rules if rule in CHAIN_RULES)
    rows = (
        covering_rows([tuple(CONTROLLERS), ADAPTED, ADAPTED_PARAMETERS, chains, PAIRS])
        if chains
        else []
    )
    return [
        Case(rule, draft, pair, params, PARAMETERS[params], 2, length=length)
        for length, draft, params, rule, pair in rows
    ]
