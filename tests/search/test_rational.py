"""Hypothesis looks for laws, as fractions, on which a rule or a sampling parameter is off: rounds
in fractions must make the target's texts exactly, and what runs must agree with them to rounding.
`make search` looks longer."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from draftproof.audit import exact
from draftproof.audit.table import DRAFTS
from draftproof.audit.toys import EOS, VOCAB, Pair
from draftproof.core.enumerate import outcomes
from draftproof.core.params import SamplingParams
from draftproof.core.records import Draft
from draftproof.core.rules import RULES
from draftproof.core.rules.k_seq import RHO
from draftproof.models.table import TableModel
from search import rational

EXAMPLES = int(os.environ.get("SEARCH_EXAMPLES", "150"))
LAW = st.lists(st.integers(0, 16), min_size=VOCAB, max_size=VOCAB).filter(any)
TABLE = st.lists(LAW, min_size=2 * VOCAB, max_size=2 * VOCAB)
CHAINS = ((1,), (1, 1), (1, 1, 1))
TREES = ((2,), (2, 1), (1, 2), (3,))
SELECTIONS = {
    "token": ("iid", "fixed"),
    "block": ("iid", "fixed"),
    "match": ("iid", "fixed", "without_replacement", "top_k_plus_one"),
    "rrs": ("iid", "fixed", "without_replacement"),
    "greedy_k": ("top_k_plus_one", "fixed"),
    "k_seq": ("iid",),
    "traversal": ("iid", "fixed", "without_replacement"),
}
CELLS = [
    (rule, selection, widths)
    for rule, selections in SELECTIONS.items()
    for selection in selections
    for widths in (CHAINS if rule in ("token", "block") else CHAINS[1:2] + TREES)
    if selection != "top_k_plus_one" or 1 not in widths[:1] or rule == "match"
]
PROMPT = (0, 1)
HALF = math.log(2.0)
"""What a logit loses when its token becomes half as likely."""


def table(parts) -> rational.Table:
    """A law for every last token, another one at odd lengths."""
    laws = [rational.scaled(list(map(Fraction, row))) for row in parts]
    return lambda prefix: laws[2 * prefix[-1] + len(prefix) % 2]


def as_model(law: rational.Table, **kwargs) -> TableModel:
    return TableModel(
        lambda prefix: np.array(law(tuple(prefix)), dtype=float), vocab_size=VOCAB, **kwargs
    )


class Laws:
    """The target's laws of one draft, for the rule that runs."""

    def __init__(self, tree: rational.Tree) -> None:
        self.tree = tree

    def row(self, node):
        return np.array(self.tree.target[node], dtype=float)

    def rows(self, nodes):
        return np.stack([self.row(node) for node in nodes])

    def draw(self, node, chance):
        return chance.draw_target(self.row(node), len(self.tree.path(node)))


def verdicts(rule: str, tree: rational.Tree) -> dict:
    """The probability of every verdict of the rule that runs, by walking its chance."""
    laws = {node: np.array(law, dtype=float) for node, law in tree.drafted.items()}
    given = {} if tree.selection == "fixed" else laws
    draft = Draft(tree.tokens, tree.parents, given, tree.selection)
    found = defaultdict(float)
    for outcome, said in outcomes(
        lambda chance: RULES[rule].verify(draft, Laws(tree), chance), start=len(PROMPT)
    ):
        path = tuple(tree.tokens[node] for node in said.path)
        found[path, said.token] += outcome.probability
    return found


def difference(one, other) -> float:
    return max(
        (abs(float(one.get(key, 0)) - float(other.get(key, 0))) for key in {*one, *other}),
        default=0.0,
    )


def check_rule(cell, target, drafted) -> None:
    """Exactly the target's texts, and the verdicts of the rule that runs."""
    rule, selection, widths = cell
    law = rational.texts(rule, selection, widths, target, drafted, PROMPT, 3)
    assert law == rational.plain_texts(target, PROMPT, 3)
    for tree, _ in rational.drafts(selection, widths, target, drafted, PROMPT):
        off = difference(rational.RULES[rule](tree), verdicts(rule, tree))
        assert off <= (RHO if rule == "k_seq" else exact.TOLERANCE)


def temperature_half(law, text):
    return [mass**2 for mass in law]


def best_two(law, text):
    least = sorted(law)[-2]
    return [mass if mass >= least else 0 for mass in law]


def at_least_a_quarter(law, text):
    return [mass if 4 * mass >= max(law) else 0 for mass in law]


def nucleus(law, text):
    """Of three quarters: tokens in rising order go while their sum stays within a quarter."""
    kept, gone = list(law), Fraction(0)
    for token in sorted(range(len(law)), key=lambda token: law[token])[:-1]:
        gone += law[token]
        if 4 * gone <= 1:
            kept[token] = 0
    return kept


def half_when_seen(law, text):
    return [mass / 2 if token in text else mass for token, mass in enumerate(law)]


def half_each_time(law, text):
    return [mass / 2 ** text.count(token) for token, mass in enumerate(law)]


def no_early_end(law, text):
    return [0 if token == EOS and len(text) < 2 else mass for token, mass in enumerate(law)]


def doubled(law, text):
    return [2 * mass if token == 1 else mass for token, mass in enumerate(law)]


PARAMETERS = {
    "plain": ({}, lambda law, text: law),
    "temperature": ({"temperature": 0.5}, temperature_half),
    "top_k": ({"top_k": 2}, best_two),
    "min_p": ({"min_p": 0.25}, at_least_a_quarter),
    "top_p": ({"top_p": 0.75}, nucleus),
    "presence": ({"presence_penalty": HALF}, half_when_seen),
    "frequency": ({"frequency_penalty": HALF}, half_each_time),
    "min_tokens": ({"min_tokens": 2}, no_early_end),
    "logit_bias": ({"logit_bias": {1: HALF}}, doubled),
}


def text_law(target, edit, prompt, longest) -> dict:
    """The target's law of whole texts in fractions; a text ends with EOS."""
    law, waiting = {}, {(): Fraction(1)}
    while waiting:
        text, mass = waiting.popitem()
        for token, share in enumerate(rational.scaled(edit(target(prompt + text), text))):
            if share:
                longer = (*text, token)
                ended = token == EOS or len(longer) == longest
                (law if ended else waiting)[longer] = mass * share
    return law


def on_an_edge(parts) -> bool:
    """Whether rounding decides what is removed: a mass or a sum that meets its bound."""
    for law in (rational.scaled(list(map(Fraction, row))) for row in parts):
        sums = [sum(sorted(law)[: count + 1]) for count in range(len(law))]
        if Fraction(1, 4) in sums or any(4 * mass == max(law) for mass in law):
            return True
    return False


def check_parameters(name, rule, draft, target, drafted) -> None:
    """The decode loop makes the texts of the target under the parameters, reckoned in fractions."""
    sampling, edit = PARAMETERS[name]
    found = Pair("found", as_model(target, eos_token_ids=(EOS,)), as_model(drafted))
    case = exact.Case(rule, draft, "found", name, SamplingParams(**sampling), 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "pairs", lambda: {"found": found})
        law = exact.Walk(exact.harness(case)).law()
    wanted = text_law(target, edit, exact.PROMPT, case.horizon)
    assert difference(law, wanted) <= exact.TOLERANCE


def refusal_free(parts) -> bool:
    """At least two tokens everywhere, so that no ban of one empties a law."""
    return all(sum(part > 0 for part in row) > 1 for row in parts)


SETTINGS = dict(
    deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
SHORT = settings(max_examples=EXAMPLES // 4, derandomize=True, phases=[Phase.generate], **SETTINGS)
LONG = settings(max_examples=EXAMPLES, **SETTINGS)
RULE = given(cell=st.sampled_from(CELLS), target=TABLE, drafted=TABLE)
PARAMETER = given(
    name=st.sampled_from(list(PARAMETERS)),
    rule=st.sampled_from(("token", "block", "match")),
    draft=st.sampled_from(DRAFTS),
    target=TABLE.filter(refusal_free).filter(lambda parts: not on_an_edge(parts)),
    drafted=TABLE.filter(refusal_free),
)


@SHORT
@RULE
def test_rules_in_fractions(cell, target, drafted):
    check_rule(cell, table(target), table(drafted))


@SHORT
@PARAMETER
def test_parameters_in_fractions(name, rule, draft, target, drafted):
    check_parameters(name, rule, draft, table(target), table(drafted))


@pytest.mark.search
@pytest.mark.timeout(2 * 3600)
@LONG
@RULE
def test_no_laws_are_found_that_a_rule_does_not_keep_exactly(cell, target, drafted):
    check_rule(cell, table(target), table(drafted))


@pytest.mark.search
@pytest.mark.timeout(2 * 3600)
@LONG
@PARAMETER
def test_no_laws_are_found_on_which_a_parameter_is_off(name, rule, draft, target, drafted):
    check_parameters(name, rule, draft, table(target), table(drafted))


TARGET = [[8, 4, 4], [2, 9, 5], [1, 7, 8], [6, 6, 4], [5, 1, 10], [3, 3, 10]]
DRAFTED = [[3, 9, 4], [8, 4, 4], [5, 5, 6], [2, 4, 10], [6, 8, 2], [7, 1, 8]]


def without_residual(tree):
    found = {}
    p, q = tree.target[-1], tree.law_of(0)
    accepted = min(Fraction(1), p[tree.tokens[0]] / q[tree.tokens[0]])
    rational.add(found, (), p, 1 - accepted)
    rational.add(found, tree.tokens, tree.target[0], accepted)
    return found


def test_a_wrong_rule_is_seen(monkeypatch):
    monkeypatch.setitem(rational.RULES, "token", without_residual)
    with pytest.raises(AssertionError):
        check_rule(("token", "iid", (1,)), table(TARGET), table(DRAFTED))


def test_a_rule_that_runs_otherwise_is_seen(monkeypatch):
    monkeypatch.setitem(RULES, "block", RULES["token"])
    with pytest.raises(AssertionError):
        check_rule(("block", "iid", (1, 1)), table(TARGET), table(DRAFTED))


def test_a_parameter_that_does_something_else_is_seen(monkeypatch):
    monkeypatch.setitem(PARAMETERS, "temperature", ({"temperature": 0.5}, lambda law, text: law))
    with pytest.raises(AssertionError):
        check_parameters("temperature", "token", "sampled", table(TARGET), table(DRAFTED))
