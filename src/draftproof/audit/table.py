"""The proof table: every rule against every kind of draft, every parameter and every pair of toys.

`covering()` is a small set of cases in which every pair of factor levels meets; `product()` is all
of them. Drafts of chains are one table, trees another: there a rule meets every selection of
siblings it declares and every shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, cycle
from itertools import product as cartesian
from typing import Any

from draftproof.audit.drafting import TREES, kinds
from draftproof.audit.exact import HORIZON, Case
from draftproof.audit.guessing import guessed_kinds
from draftproof.audit.toys import VOCAB, WIDE, NothingAfterAnEnd, ToyGrammar, pairs
from draftproof.core.parameters import PARAMETERS as STATED_PARAMETERS
from draftproof.core.parameters import No
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.rules import LOSSLESS

_LAWS = LawPipeline(SamplingParams(), num_prompt_tokens=1, vocab_size=VOCAB)


def chain_drafts() -> tuple[str, ...]:
    """The names of all drafts of chains by single drafters."""
    toys = pairs()["markov"]
    listed = kinds(toys.target, toys.draft, _LAWS, lambda model: model)
    return tuple(name for name, kind in listed.items() if not kind.members)


DRAFTS = chain_drafts()
"""Chains; those of several drafters are proven with their lengths, see `cells.length_covering`."""

GUESSED = tuple(guessed_kinds(_LAWS))
"""Drafts whose shape depends on the context."""

PAIRS = ("full_history", "markov", "zeros", "near")
TREE_PAIRS = (*PAIRS, "overrated")
LENGTHS = (1, 2, 3)

_OPEN: dict[str, Any] = {"max_tokens": HORIZON + max(LENGTHS) + 1, "ignore_eos": True, "seed": 0}
_CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    **{
        case: {name: value}
        for name, stated in STATED_PARAMETERS.items()
        if not isinstance(stated.proof, No)
        for case, value in stated.proof.items()
    },
    "warper": {"logits_warpers": [NothingAfterAnEnd()], "ignore_eos": False},
    "eos": {"ignore_eos": False},
    "min_tokens": {"ignore_eos": False, "min_tokens": 2},
    "nothing after an end": {"ignore_eos": False, "logits_processors": [NothingAfterAnEnd()]},
    "structured_outputs": {"structured_outputs": ToyGrammar()},
    "all at once": {
        "temperature": 0.7,
        "top_p": 0.9,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
        "ignore_eos": False,
    },
}
PARAMETERS = {name: SamplingParams(**(_OPEN | changes)) for name, changes in _CHANGES.items()}


CHAIN_RULES = tuple(name for name, rule in LOSSLESS.items() if rule.selections >= {"iid", "fixed"})
"""Rules for the drafts in DRAFTS, which are sampled or fixed; the others are proven on trees,
chains among them."""

TREE_RULES = tuple(
    (name, selection)
    for name, rule in LOSSLESS.items()
    if rule.trees
    for selection in sorted(rule.selections)
)
"""Every rule that takes trees with every selection of siblings it is exact for."""

CHAIN_SELECTIONS = tuple(
    (name, selection)
    for name, rule in LOSSLESS.items()
    if not rule.trees
    for selection in sorted(rule.selections - {"iid", "fixed"})
)
"""Rules for chains with the selections of siblings that a chain's only child may be drawn by."""

SMALL_TREES = ("chain", "[2,2]-1", "[2,1,1]-1", "lopsided")
"""At most 5 nodes: what the covering array is made of."""

LARGE_TREES = ("chain", "[2,1]", "lopsided", "[2,2]", "[2,1,1]")
"""Up to 6 nodes: what the full product is made of."""


def product(rules: Sequence[str] = CHAIN_RULES) -> Iterator[Case]:
    """Every cell of the table of chains."""
    for rule, draft, pair, params, length in cartesian(
        _chain_rules(rules), DRAFTS, PAIRS, PARAMETERS, LENGTHS
    ):
        yield Case(rule, draft, pair, params, PARAMETERS[params], length)


def covering(rules: Sequence[str] = CHAIN_RULES) -> list[Case]:
    """Cells of chains in which every two levels of different factors meet at least once (greedy,
    deterministic); and every rule on sampled drafts of the greatest length, on every pair of toys:
    a fault of a block shows there, if anywhere."""
    if not _chain_rules(rules):
        return []
    rows = covering_rows([tuple(PARAMETERS), DRAFTS, _chain_rules(rules), PAIRS, LENGTHS])
    rows += [
        ("plain", "sampled", rule, pair, max(LENGTHS))
        for rule in _chain_rules(rules)
        for pair in PAIRS
    ]
    return [
        Case(*row)
        for row in dict.fromkeys((r, d, pair, p, PARAMETERS[p], n) for p, d, r, pair, n in rows)
    ]


def tree_product(rules: Sequence[str] = tuple(LOSSLESS)) -> Iterator[Case]:
    """Every cell of the table of trees."""
    for kind, params, shape, pair in cartesian(
        _tree_rules(rules), PARAMETERS, LARGE_TREES, TREE_PAIRS
    ):
        yield tree_case(kind, params, shape, pair)


def tree_covering(rules: Sequence[str] = tuple(LOSSLESS)) -> list[Case]:
    """Cells of small trees in which every two levels of different factors meet; and each rule with
    each selection once through the whole decode loop, by the small-model drafter itself."""
    kinds = _tree_rules(rules)
    if not kinds:
        return []
    cases = [
        tree_case(*row)
        for row in covering_rows([kinds, tuple(PARAMETERS), SMALL_TREES, TREE_PAIRS])
    ]
    return [
        *cases,
        *(tree_case(kind, "plain", "[2,1]", "zeros", by="model ", rounds=None) for kind in kinds),
    ]


def sibling_covering(rules: Sequence[str] = tuple(LOSSLESS)) -> list[Case]:
    """Three and four siblings over five tokens, under every rule and selection, plainly and under
    one of the parameters in turn: with two siblings, or three tokens, the earlier ones and the last
    one are told apart by nothing. And chains whose only child is drawn by another selection than
    "iid"."""
    turns = cycle(name for name in PARAMETERS if name != "plain")
    cases = []
    for kind in _tree_rules(rules):
        for shape in ("[3]", "[3]+1") if kind[1] == "iid" else ("[3]+1", "[4]"):
            cases += [tree_case(kind, params, shape, "wide") for params in ("plain", next(turns))]
    chains = [kind for kind in CHAIN_SELECTIONS if kind[0] in rules]
    return [
        *cases,
        *(tree_case(kind, next(turns), "chain", pair) for kind in chains for pair in PAIRS),
    ]


def guessed_product(rules: Sequence[str] = tuple(LOSSLESS)) -> Iterator[Case]:
    """Every cell of the table of trees whose shape depends on the context: one round, drafts of two
    levels."""
    for rule, draft, params, pair in cartesian(
        _guess_rules(rules), GUESSED, PARAMETERS, TREE_PAIRS
    ):
        yield guessed_case(rule, draft, params, pair)


def guessed_covering(rules: Sequence[str] = tuple(LOSSLESS)) -> list[Case]:
    """Cells of the same in which every two levels of different factors meet; and each drafter once
    through the whole loop."""
    kinds = _guess_rules(rules)
    if not kinds:
        return []
    cases = [
        guessed_case(*row) for row in covering_rows([kinds, GUESSED, tuple(PARAMETERS), TREE_PAIRS])
    ]
    return [
        *cases,
        *(guessed_case(kinds[0], draft, "plain", "full_history", rounds=None) for draft in GUESSED),
    ]


def guessed_case(rule: str, draft: str, params: str, pair: str, *, rounds: int | None = 1) -> Case:
    """A cell of guessed trees."""
    return Case(rule, draft, pair, params, PARAMETERS[params], 3, HORIZON, rounds)


def _sampling(params: str, pair: str) -> SamplingParams:
    """The parameters of that name; a grammar is over the tokens of the pair."""
    if params == "structured_outputs" and pair == "wide":
        return replace(PARAMETERS[params], structured_outputs=ToyGrammar(WIDE))
    return PARAMETERS[params]


def tree_case(
    kind: tuple[str, str],
    params: str,
    shape: str,
    pair: str,
    *,
    by: str = "",
    rounds: int | None = 1,
) -> Case:
    """A cell of trees; `kind` is (rule, selection), `by` "model " for the small-model drafter."""
    rule, selection = kind
    depth = TREES[shape].depth
    return Case(
        rule,
        f"{by}{selection} {shape}",
        pair,
        params,
        _sampling(params, pair),
        depth,
        depth + 1,
        rounds,
    )


def _chain_rules(rules: Sequence[str]) -> tuple[str, ...]:
    return tuple(rule for rule in rules if rule in CHAIN_RULES)


def _guess_rules(rules: Sequence[str]) -> tuple[str, ...]:
    return tuple(rule for rule, selection in TREE_RULES if selection == "fixed" and rule in rules)


def _tree_rules(rules: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(kind for kind in TREE_RULES if kind[0] in rules)


def covering_rows(factors: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows, one level of each factor, in which every two levels of different factors meet."""
    missing = {
        ((i, a), (j, b))
        for i, j in combinations(range(len(factors)), 2)
        for a in factors[i]
        for b in factors[j]
    }
    used: Counter[tuple[int, Any]] = Counter()
    rows = []
    while missing:
        row = _best_row(factors, missing, used)
        missing -= set(combinations(enumerate(row), 2))
        used.update(enumerate(row))
        rows.append(row)
    return rows


def _best_row(
    factors: Sequence[Sequence[Any]], missing: set[Any], used: Counter[tuple[int, Any]]
) -> tuple[Any, ...]:
    """A row that starts from a missing pair and fills the other factors with what covers most, the
    least used among equals."""
    (i, a), (j, b) = min(missing, key=repr)
    row: dict[int, Any] = {i: a, j: b}
    for k, levels in enumerate(factors):
        if k not in row:
            gains = [(_gain(row, k, level, missing), -used[k, level]) for level in levels]
            row[k] = levels[gains.index(max(gains))]
    return tuple(row[k] for k in range(len(factors)))


def _gain(row: dict[int, Any], factor: int, level: Any, missing: set[Any]) -> int:
    pairs = (
        tuple(sorted([(k, v), (factor, level)], key=lambda item: item[0])) for k, v in row.items()
    )
    return sum(pair in missing for pair in pairs)
