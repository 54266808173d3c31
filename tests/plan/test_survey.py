"""Passes of 1 to 32 tokens at the contexts that texts meet: which contexts, how far, and that
nothing is left open."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.costs.verify_curve import VerifyCurve
from draftproof.models.table import TableModel
from draftproof.plan import survey as module
from draftproof.plan.document import cost_result
from draftproof.plan.forcing import Text
from draftproof.plan.survey import contexts_met, survey

TABLE = np.full((8, 8), 1 / 8)


def texts(*sizes: tuple[int, int]) -> list[Text]:
    return [Text(tuple(range(p)), tuple(range(a)), own=True) for p, a in sizes]


def test_both_ends_of_a_reading_or_the_middle_of_a_short_one() -> None:
    assert contexts_met(texts((100, 300)), 1024) == (100, 400)
    assert contexts_met(texts((100, 20)), 1024) == (110,)
    assert contexts_met(texts((100, 5000)), 1024) == (100, 1024)
    assert contexts_met(texts((3000, 100)), 1024) == (1024,)
    many = texts(*[(10 * i, 100) for i in range(1, 12)])
    assert contexts_met(many, 1024) == (20, 200)


def test_every_context_is_told_of_and_timed_up_to_32_tokens() -> None:
    told: list[tuple[str, int, int]] = []
    found = survey(TableModel(TABLE), texts((4, 3), (40, 8)), 1024, lambda *what: told.append(what))
    assert list(found) == [8, 44] and told == [
        (f"timing passes of up to {module.LONGEST_PASS} tokens", i, 2) for i in range(2)
    ]
    for curve in found.values():
        assert curve.tokens[0] == 1 and curve.tokens[-1] == 32 and curve.ratios[0] == 1


@pytest.mark.parametrize("limit", [2, 6, 20, 64])
def test_it_stays_within_the_model_s_context_and_closes_what_it_opens(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, opened = TableModel(TABLE, max_length=limit), []
    real = model.open

    def open_and_note() -> object:
        opened.append(real())
        return opened[-1]

    monkeypatch.setattr(model, "open", open_and_note)
    closed: list[object] = []
    for kind in {type(real())}:
        monkeypatch.setattr(kind, "close", lambda self: closed.append(self))
    found = survey(model, texts((1, limit - 1)), 1024, lambda *what: None, batch=2)
    assert all(context + curve.tokens[-1] <= limit for context, curve in found.items())
    assert opened and closed == opened


def test_the_page_says_what_passes_cost_at_each_context() -> None:
    curve = VerifyCurve.from_times({1: 1.0, 5: 1.5, 32: 3.0})
    ratios = {str(n): float(curve(n)) for n in range(1, 33)}
    data = {
        "drafters": [],
        "verify_curves": [
            {"context": 120, "ratios": ratios},
            {"context": 700, "ratios": {"1": 1.0, "2": 1.25}},
        ],
    }
    first, second = cost_result(data).notes
    assert (
        first.startswith("behind 120 tokens") and "5: 1.50" in first and first.endswith("32: 3.00")
    )
    assert second.endswith("single steps: 2: 1.25")
