"""What a stranger adds from the pages alone, in one file each: found, proven, and named when it is
broken or unproven."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from completeness import check_drafter, check_method
from draftproof import SamplingParams, SpeculativeDecoder, TableModel, drafters
from draftproof.audit import formulas, table
from draftproof.audit.cells import prove_cell
from draftproof.audit.exact import Case
from draftproof.core import rules
from draftproof.drafters import registry
from draftproof.errors import UsageError
from draftproof.plan.acceptance import Judge

DOCS = Path(__file__).parents[2] / "docs"


def page(name):
    """The first block of code of a page: the whole of the file it tells to write."""
    return re.search(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)[
        1
    ]


@pytest.fixture
def added(tmp_path, monkeypatch):
    """Puts one file into a folder of the package, as far as imports can tell."""

    def add(package, name, text):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
        registry._found.cache_clear()
        return importlib.import_module(f"{package.__name__}.{name}")

    yield add
    monkeypatch.undo()
    registry._found.cache_clear()
    for module in [name for name in sys.modules if name.endswith((".repeat_last", ".first_only"))]:
        del sys.modules[module]


def cells_of_repeat_last():
    for rule in table.CHAIN_RULES:
        for params in ("plain", "all at once"):
            yield Case(rule, "repeat_last", "markov", params, table.PARAMETERS[params], 2)


def test_a_drafter_is_one_file(added):
    added(drafters, "repeat_last", page("add_a_drafter.md"))
    assert "repeat_last" in registry.drafting_methods()
    assert "repeat_last" in table.chain_drafts()
    assert registry.examples()["repeat_last"]().name == "repeat_last"
    target = TableModel([[0.8, 0.2], [0.1, 0.9]])
    decoder = SpeculativeDecoder(None, target, speculative_config={"method": "repeat_last"})
    assert decoder.generate([0], SamplingParams(max_tokens=20, seed=1)).stats.tokens_per_round > 1
    for proof in map(prove_cell, cells_of_repeat_last()):
        assert proof.holds, proof.case


def test_a_drafter_that_drafts_something_else_fails_its_cells(added):
    text = page("add_a_drafter.md")
    broken = text.replace("draft.guess(context[-1])", "draft.guess(context[0])")
    assert broken != text
    added(drafters, "repeat_last", broken)
    failed = [
        proof.case.draft for proof in map(prove_cell, cells_of_repeat_last()) if not proof.holds
    ]
    assert set(failed) == {"repeat_last"}


def test_a_drafter_without_a_proof_is_named(added):
    text = page("add_a_drafter.md")
    added(drafters, "repeat_last", re.sub(r"\n        proof=.*", "", text))
    with pytest.raises(
        AssertionError, match="method 'repeat_last' is not in the proof: state proof="
    ):
        check_method("repeat_last")
    with pytest.raises(AssertionError, match="repeat_last.py is not in the proof"):
        check_drafter("repeat_last")


def cells_of_first_only():
    for draft in ("sampled", "greedy", "ngram", "retrieval"):
        yield Case("first_only", draft, "markov", "plain", table.PARAMETERS["plain"], 2)
    for selection in ("fixed", "iid", "without_replacement", "top_k_plus_one"):
        yield table.tree_case(("first_only", selection), "all at once", "[2,1]", "zeros")


@pytest.fixture
def ruled(added, monkeypatch):
    """Adds a rule's file, and reads the files of rules anew."""

    def add(text):
        added(rules, "first_only", text)
        for name, stated in rules._stated().items():
            monkeypatch.setitem(rules.STATED, name, stated)
            monkeypatch.setitem(rules.RULES, name, stated.rule)

    return add


def test_a_rule_is_one_file(ruled):
    ruled(page("add_a_rule.md"))
    assert rules.rule_by_name("first_only").lossless
    for proof in map(prove_cell, cells_of_first_only()):
        assert proof.holds, proof
    with pytest.raises(UsageError, match="plan cannot foretell a chain under rule 'first_only'"):
        Judge("first_only")


def test_a_rule_without_its_last_draw_fails_its_cells(ruled):
    text = page("add_a_rule.md")
    broken = text.replace(
        "Verdict((child,), int(target_laws.draw(child, chance)))", "Verdict((), token)"
    )
    assert broken != text
    ruled(broken)
    proofs = list(map(prove_cell, cells_of_first_only()))
    assert [proof.case.rule for proof in proofs if not proof.holds] == ["first_only"] * len(proofs)


def test_a_rule_without_its_expected_length_is_named(ruled):
    ruled(re.sub(r"    Formula\(\n.*?\n    \),\n", "", page("add_a_rule.md"), flags=re.DOTALL))
    with pytest.raises(
        UsageError,
        match="rule 'first_only' has no expected length to be proven with: state expected=",
    ):
        formulas.formula_of("first_only")
