"""The rules that run give the laws that are proven in proofs/, draft by draft: fractions from Coq
against double precision."""

from __future__ import annotations

import re
import subprocess

import pytest

import theorem
import theorem_cases
from draftproof.audit.exact import TOLERANCE
from draftproof.audit.tree_mutants import MUTANTS
from draftproof.core.rules import RULES

PROVEN = ("block", "greedy_k", "k_seq", "match", "rrs", "token", "traversal")
PLANTED = (
    "correction from the target's law, no residual",
    "correction from |target - draft|",
    "ratio inverted",
    "block acceptance with the token residual",
    "block, stop at the first failure",
    "block, uncapped joint ratio at the end",
    "match, then a fresh redraw",
    "siblings without replacement, law not renormalised",
    "siblings visited by probability instead of draw order",
    "K-SEQ with rho = 1",
    "greedy_k, residual of the whole draft law",
    "traversal, residual not scaled",
)


@pytest.mark.parametrize("rule", PROVEN)
def test_what_runs_is_what_is_proven(rule):
    laws = [(case, law) for case, law in theorem_cases.kept() if case.rule == rule]
    assert len(laws) >= 30
    for case, proven in laws:
        assert sum(proven.values()) == 1
        assert (
            theorem_cases.difference(theorem_cases.law_of(RULES[rule].verify, case), proven)
            <= TOLERANCE
        ), case


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_shows(name):
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    selection = mutant.draft.split()[0].replace("sampled", "iid")
    laws = [
        (case, law)
        for case, law in theorem_cases.kept()
        if (case.rule, case.selection) == (mutant.natural, selection)
    ]
    assert (
        max(
            theorem_cases.difference(theorem_cases.law_of(mutant.verify, case), proven)
            for case, proven in laws
        )
        > 1e-3
    )


@pytest.mark.slow
@pytest.mark.skipif(
    not (theorem.PROOFS / "main.vo").exists(), reason="the proofs are not built: make theorem"
)
def test_the_proofs_give_the_laws_that_are_kept():
    assert theorem.proven_laws() == theorem_cases.KEPT.read_text(encoding="utf-8")


def test_an_assumption_fails_the_build(monkeypatch, tmp_path):
    monkeypatch.setattr(theorem, "OUT", tmp_path)
    closed = [theorem.CLOSED] * len(theorem.asked())
    assert len(theorem.read_assumptions("\n".join(closed))) == len(closed) > 20
    with pytest.raises(theorem.ProofError, match="rests on an assumption"):
        theorem.read_assumptions(
            "\n".join([*closed[1:], "Axioms:", "overlap_small : forall p q, mass (common p q) = 0"])
        )


def test_a_proof_left_open_fails_the_build(monkeypatch, tmp_path):
    monkeypatch.setattr(theorem, "PROOFS", tmp_path)
    monkeypatch.setattr(theorem, "FILES", ["law"])
    (tmp_path / "law.v").write_text(
        "(* Admitted is what this is not *)\nLemma easy : 1 = 2.\nProof.\nAdmitted.\n"
    )
    with pytest.raises(theorem.ProofError, match="law.v says Admitted"):
        theorem.build()


def test_without_coq_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert theorem.main([]) == 0
    told = capsys.readouterr().out
    assert "not checked, Coq is not installed" in told
    assert "libcoq-mathcomp-algebra" in told


def test_another_coq_is_named(monkeypatch):
    monkeypatch.setattr(theorem.shutil, "which", lambda name: "/usr/bin/coqc")
    monkeypatch.setattr(
        theorem,
        "_run",
        lambda *command: subprocess.CompletedProcess(command, 0, "8.19.2 4.14.1\n", ""),
    )
    assert theorem.missing() == "the proofs are written for Coq 8.16, and this is 8.19.2"


def test_the_page_counts_what_there_is():
    page = (theorem.PROOFS.parent / "docs" / "theorem.md").read_text(encoding="utf-8")
    figure = (theorem.PROOFS.parent / "docs" / "theorem.svg").read_text(encoding="utf-8")
    laws = len(theorem_cases.kept())
    assert f"For {laws}\npairs" in page and f"{laws} laws of verdicts" in figure
    assert len(PLANTED) == 12 and "twelve planted changes" in page
    assert f"each of the {len(theorem.asked())} statements" in page
    named = {
        name
        for row in page.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert named <= set(theorem.asked())
