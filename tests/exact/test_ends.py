"""Nothing is drafted, read or asked behind an accepted end; the faults that would do it are seen.

The table's parameters "nothing after an end" hold a processor that goes off when a law after an end
token is asked for, by the target's pipeline or the drafter's. Here its cells with the drafts that
reach furthest behind, and planted faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from draftproof.audit.cells import harness_of, prove_cell
from draftproof.audit.exact import TOLERANCE, Case, compare
from draftproof.audit.heads import KINDS, head_cases
from draftproof.audit.others import KINDS as OTHERS
from draftproof.audit.others import rules_of
from draftproof.audit.table import CHAIN_RULES, PARAMETERS, TREE_RULES, tree_case
from draftproof.audit.toys import AskedAfterAnEnd
from draftproof.core.records import Draft
from draftproof.decode import generation
from draftproof.decode.generation import Generation
from draftproof.decode.target_laws import RowLaws
from draftproof.drafters.builder import DraftBuilder

NOTHING = "nothing after an end"
CHAINS = [
    Case(rule, "sampled", "full_history", NOTHING, PARAMETERS[NOTHING], 3) for rule in CHAIN_RULES
]
TREES = [tree_case(kind, NOTHING, "[2,1]", "overrated") for kind in TREE_RULES]
HEADS = head_cases((NOTHING,), KINDS)
# early_exit among them, which transformers' own grammars met
OTHER = [
    Case(rules_of(kind)[0], kind, "markov", NOTHING, PARAMETERS[NOTHING], 2, 3) for kind in OTHERS
]
TAKE_PART = ("token", "block", "match")


@pytest.mark.parametrize(
    "case", [*CHAINS, *TREES, *OTHER, *HEADS[:4]], ids=lambda case: f"{case.rule}-{case.draft}"
)
def test_no_law_is_made_after_an_end(case):
    assert prove_cell(case).holds


@pytest.mark.proof
@pytest.mark.parametrize("case", HEADS[4:], ids=lambda case: f"{case.rule}-{case.draft}")
def test_no_head_makes_a_law_after_an_end(case):
    assert prove_cell(case).holds


@pytest.mark.parametrize("rule", TAKE_PART)
def test_a_draft_that_goes_on_behind_an_end_is_seen(rule, monkeypatch):
    def careless(*args, ends, **options):
        return DraftBuilder(*args, **options)

    monkeypatch.setattr(generation, "DraftBuilder", careless)
    with pytest.raises(AskedAfterAnEnd):
        _walked(rule)


@pytest.mark.parametrize("rule", TAKE_PART)
def test_a_rule_that_asks_the_row_behind_an_end_is_seen(rule, monkeypatch):
    def careless(pipeline, logits, context, draft):
        return RowLaws(pipeline, logits, context, replace(draft, ends=frozenset()))

    monkeypatch.setattr(generation, "RowLaws", careless)
    with pytest.raises(AskedAfterAnEnd):
        _walked(rule)


@pytest.mark.parametrize("rule", TAKE_PART)
def test_a_bonus_after_an_accepted_end_is_seen(rule, monkeypatch):
    def careless(self, draft, verdict, logits):
        tokens = [*(draft.tokens[node] for node in verdict.path), verdict.token]
        for token in tokens:
            self.context.append(token)
            self.stopper.push(token)
        return tokens, len(verdict.path)

    monkeypatch.setattr(Generation, "_commit", careless)
    assert _walked(rule).tv > 0.01


@pytest.mark.parametrize("rule", ("token", "block"))
def test_an_end_that_is_drawn_and_then_dropped_is_seen(rule, monkeypatch):
    class Careless(DraftBuilder):
        def build(self) -> Draft:
            draft = super().build()
            kept = len(draft) - len(draft.ends)
            return Draft(draft.tokens[:kept], draft.parents[:kept], draft.laws, draft.selection)

    monkeypatch.setattr(generation, "DraftBuilder", Careless)
    case = Case(rule, "sampled", "full_history", "eos", PARAMETERS["eos"], 3)
    assert compare(case, harness_of(case)).tv > 0.01


def test_the_walk_itself_is_exact():
    assert all(_walked(rule).tv <= TOLERANCE for rule in TAKE_PART)


def _walked(rule):
    case = Case(rule, "sampled", "full_history", NOTHING, PARAMETERS[NOTHING], 2)
    return compare(case, harness_of(case))
