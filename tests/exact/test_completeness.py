"""Nothing escapes the proof: a drafter or a rule that has no cell of its own is named here, with
what to add and where."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace

import pytest

from completeness import cells_by_draft, check_drafter, check_method, proven_drafters
from draftproof import drafters
from draftproof.audit import others, table
from draftproof.audit.formulas import formula_of, tree_formula
from draftproof.core import rules
from draftproof.core.rules import LOSSLESS, RULES
from draftproof.drafters.registry import drafting_methods

NO_RULES = {"protocol", "stated"}


@pytest.mark.parametrize("method", drafting_methods())
def test_every_method_has_a_cell(method):
    check_method(method)


@pytest.mark.parametrize(
    "module", [m.name for m in pkgutil.iter_modules(drafters.__path__) if not m.ispkg]
)
def test_every_drafter_has_a_cell(module):
    check_drafter(module)


@pytest.mark.parametrize("module", [m.name for m in pkgutil.iter_modules(rules.__path__)])
def test_every_rule_is_known(module):
    found = importlib.import_module(f"draftproof.core.rules.{module}")
    classes = [
        kind
        for kind in vars(found).values()
        if isinstance(kind, type) and kind.__module__ == found.__name__
    ]
    known = {type(rule) for rule in RULES.values()}
    if module not in NO_RULES:
        assert known.intersection(classes), (
            f"src/draftproof/core/rules/{module}.py is no rule of the proof: state it in "
            "STATED at its end (docs/add_a_rule.md)"
        )


@pytest.mark.parametrize("rule", LOSSLESS)
def test_every_rule_has_its_expected_length(rule):
    formula_of(rule)
    for selection in sorted(LOSSLESS[rule].selections) if LOSSLESS[rule].trees else ():
        tree_formula(rule, selection)


@pytest.mark.parametrize("rule", LOSSLESS)
def test_every_rule_meets_every_selection_it_declares(rule):
    chains = {case.draft for case in table.covering([rule])}
    siblings = {
        case.draft.split()[0]
        for case in (*table.tree_covering([rule]), *table.sibling_covering([rule]))
    }
    met = siblings | ({"iid", "fixed"} if chains else set())
    missing = LOSSLESS[rule].selections - met
    assert not missing, (
        f"rule {rule!r} is not proven on {', '.join(sorted(missing))} drafts: see the "
        "tables in audit/table.py"
    )


def test_what_is_missing_is_named(monkeypatch):
    """The sentences themselves, by taking something away."""
    from draftproof.errors import UsageError

    monkeypatch.setitem(rules.STATED, "block", replace(rules.STATED["block"], expected=None))
    with pytest.raises(
        UsageError, match="'block' has no expected length .* expected= in the STATED of its file"
    ):
        formula_of("block")
    with pytest.raises(UsageError, match="'token' has no expected length for iid siblings"):
        tree_formula("token", "iid")
    monkeypatch.delitem(others.KINDS, "recycling")
    cells_by_draft.cache_clear()
    proven_drafters.cache_clear()
    try:
        with pytest.raises(
            AssertionError, match="method 'recycling' is not in the proof: state proof="
        ):
            check_method("recycling")
    finally:
        cells_by_draft.cache_clear()
        proven_drafters.cache_clear()
