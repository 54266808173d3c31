"""The proof table: every rule against every kind of draft, every parameter and every pair of toys.

`covering()` is a small set of cases in which every pair of factor levels meets; `product()` is all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from itertools import product as cartesian
from multiprocessing import get_context
from typing import Any

from draftproof.audit.exact import HORIZON, Case, Proof, prove
from draftproof.audit.toys import EOS
from draftproof.core.params import SamplingParams
from draftproof.core.rules import RULES

DRAFTS = ("sampled", "greedy", "narrow", "same", "empty", "stops_before", "stops_after", "ngram")
PAIRS = ("full_history", "markov", "zeros")
LENGTHS = (1, 2, 3)

_OPEN: dict[str, Any] = {"max_tokens": HORIZON + max(LENGTHS) + 1, "ignore_eos": True, "seed": 0}
_CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "greedy": {"temperature": 0.0},
    "temperature 0.5": {"temperature": 0.5},
    "temperature 2": {"temperature": 2.0},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.3},
    "repetition_penalty": {"repetition_penalty": 1.4},
    "presence_penalty": {"presence_penalty": 0.8},
    "frequency_penalty": {"frequency_penalty": 0.9},
    "logit_bias": {"logit_bias": {0: 0.7, 1: -0.5}},
    "suppress_tokens": {"suppress_tokens": [1]},
    "bad_words_ids": {"bad_words_ids": [[0, 1]]},
    "eos": {"ignore_eos": False},
    "min_tokens": {"ignore_eos": False, "min_tokens": 2},
    "stop_token_ids": {"stop_token_ids": [EOS]},
    "max_tokens": {"max_tokens": 3},
    "all at once": {
        "temperature": 0.7,
        "top_p": 0.9,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
        "ignore_eos": False,
    },
}
PARAMETERS = {name: SamplingParams(**(_OPEN | changes)) for name, changes in _CHANGES.items()}


def product(rules: Sequence[str] = tuple(RULES)) -> Iterator[Case]:
    """Every cell of the table."""
    for rule, draft, pair, params, length in cartesian(rules, DRAFTS, PAIRS, PARAMETERS, LENGTHS):
        yield Case(rule, draft, pair, params, PARAMETERS[params], length)


def covering(rules: Sequence[str] = tuple(RULES)) -> list[Case]:
    """Cells in which every two levels of different factors meet at least once (greedy construction, deterministic)."""
    factors: list[Sequence[Any]] = [tuple(PARAMETERS), DRAFTS, tuple(rules), PAIRS, LENGTHS]
    missing = {((i, a), (j, b)) for i, j in combinations(range(len(factors)), 2) for a in factors[i] for b in factors[j]}
    cases = []
    while missing:
        row = _best_row(factors, missing)
        missing -= set(combinations(enumerate(row), 2))
        params, draft, rule, pair, length = row
        cases.append(Case(rule, draft, pair, params, PARAMETERS[params], length))
    return cases


def _best_row(factors: Sequence[Sequence[Any]], missing: set[Any]) -> tuple[Any, ...]:
    """A row that starts from a missing pair and fills the other factors with what covers most."""
    (i, a), (j, b) = min(missing, key=repr)
    row: dict[int, Any] = {i: a, j: b}
    for k, levels in enumerate(factors):
        if k not in row:
            row[k] = max(levels, key=lambda level: _gain(row, k, level, missing))
    return tuple(row[k] for k in range(len(factors)))


def _gain(row: dict[int, Any], factor: int, level: Any, missing: set[Any]) -> int:
    pairs = (tuple(sorted([(k, v), (factor, level)], key=lambda item: item[0])) for k, v in row.items())
    return sum(pair in missing for pair in pairs)


def prove_all(cases: Iterable[Case], workers: int = 1) -> Iterator[Proof]:
    """Prove cases in order, in `workers` processes."""
    if workers <= 1:
        yield from map(prove, cases)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(prove, cases, chunksize=8)
