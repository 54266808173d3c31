"""Draft heads in the proof: random networks over a target that shows features, every round walked,
law and length exact."""

from __future__ import annotations

import pytest

from draftproof.audit.exact import TOLERANCE, compare
from draftproof.audit.heads import KINDS, head_cases, head_harness
from draftproof.audit.table import PARAMETERS
from draftproof.drafters.eagle import EagleSession

FAST = ("plain", "all at once", "repetition_penalty", "bad_words_ids", "eos", "greedy")


def name(case):
    return f"{case.rule}-{case.draft}-{case.params}"


LONG = {("match", "eagle"), ("token", "eagle"), ("block", "eagle"), ("match", "eagle3")}
"""Plain cells of ten seconds and more: in the full proof. Other parameters of the same drafts stay
here."""


def covering():
    """Every kind under every rule plainly, and every parameter of FAST with one kind after
    another."""
    cases = [case for case in head_cases(("plain",)) if (case.rule, case.draft) not in LONG]
    for turn, params in enumerate(FAST[1:]):
        for offset in (0, 3, 5):
            kind = KINDS[(turn + offset) % len(KINDS)]
            cases.append(head_cases((params,), (kind,))[-1])
    # its best paths end the text, and nothing is drafted behind
    return cases + head_cases(("all at once",), ("eagle3 tree",))


@pytest.mark.parametrize("case", covering(), ids=name)
def test_the_law_and_the_length_are_exact(case):
    proof = compare(case, head_harness(case))
    assert proof.tv <= TOLERANCE
    assert proof.length_error <= TOLERANCE
    assert proof.rounds > (1 if case.params == "greedy" else 2), (
        "at temperature 0 there is one way, of two rounds or more"
    )


@pytest.mark.proof
@pytest.mark.parametrize("case", head_cases(tuple(PARAMETERS)), ids=name)
def test_all_parameters(case):
    proof = compare(case, head_harness(case))
    assert proof.holds


def test_a_penalty_that_does_not_see_the_draft_shows(monkeypatch):
    """A published fault: drafts drawn with penalties that know the context but not the drafted
    tokens. The text stays exact, for
    the law of the draw is the law in the ratio; the drafts are others than the parameters ask for,
    and the length tells."""
    plain = EagleSession._grow

    def without_path(self, logits, context, draft):
        path = type(draft).path
        monkeypatch.setattr(type(draft), "path", lambda self, node=None: ())
        try:
            return plain(self, logits, context, draft)
        finally:
            monkeypatch.setattr(type(draft), "path", path)

    monkeypatch.setattr(EagleSession, "_grow", without_path)
    proof = compare(*_case("token", "eagle", "repetition_penalty"))
    assert proof.tv <= TOLERANCE
    assert proof.length_error > 1e-3


def test_a_draw_that_bypasses_the_parameters_is_not_recorded_as_one(monkeypatch):
    """The published bonus fault, in the drafter's place: a law made without the temperature would
    be another draft law; it is still the one recorded, so nothing is biased."""
    plain = EagleSession._grow

    def raw(self, logits, context, draft):
        laws = self._laws
        self._laws = type(laws)(PARAMETERS["plain"], num_prompt_tokens=3, vocab_size=3)
        try:
            return plain(self, logits, context, draft)
        finally:
            self._laws = laws

    monkeypatch.setattr(EagleSession, "_grow", raw)
    proof = compare(*_case("token", "eagle", "temperature 0.5"))
    assert proof.tv <= TOLERANCE
    assert proof.length_error > 1e-3


def test_a_row_left_over_from_a_rejected_draft_shows(monkeypatch):
    """A head that forgets to roll back reads the next tokens after rows of guessed features."""
    from draftproof.heads.feature_head import Rows

    monkeypatch.setattr(Rows, "rollback", lambda self, length: None)
    proof = compare(*_case("token", "eagle", "plain"))
    assert proof.tv <= TOLERANCE
    assert proof.length_error > 1e-3


def _case(rule, draft, params):
    case = next(c for c in head_cases((params,), (draft,)) if c.rule == rule)
    return case, head_harness(case)
