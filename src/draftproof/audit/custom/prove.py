"""The proof of one subject: every cell of it, the worst of them, and the first context that goes
wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from draftproof.audit.custom.loops import cells_of_drafter, cells_of_rule, examine
from draftproof.audit.custom.steps import StepLoop
from draftproof.audit.custom.subjects import Subject, recognised, subject_named
from draftproof.audit.custom.wrong import FirstWrong, first_wrong
from draftproof.audit.exact import HORIZON, PROMPT, TOLERANCE, total_variation
from draftproof.audit.table import LENGTHS, PAIRS
from draftproof.audit.toys import pairs
from draftproof.errors import UsageError

Tell = Callable[[str, int, int], None]
TWO_TOKENS = "two tokens"
LONGEST_ON = "full_history"
"""Three tokens are drafted on these models too: that is where faults of a block show. On the others
two do."""


@dataclass(frozen=True)
class Cell:
    """models, draft, rule: what was enumerated. k: the most tokens drafted. tokens_per_round: the
    first round's, on average."""

    models: str
    k: int
    tv: float
    tokens_per_round: float
    draft: str | None = None
    rule: str | None = None
    key_repeated: bool = False
    wrong: FirstWrong | None = None

    @property
    def exact(self) -> bool:
        return self.tv <= TOLERANCE


@dataclass(frozen=True)
class Proven:
    """A subject and its cells."""

    subject: Subject
    cells: tuple[Cell, ...]

    @property
    def exact(self) -> bool:
        return all(cell.exact for cell in self.cells)

    @property
    def worst(self) -> Cell:
        return max(self.cells, key=lambda cell: cell.tv)

    @property
    def shortest(self) -> Cell | None:
        """The cell whose first wrong context is the easiest to follow: the fewest drafts, then the
        fewest tokens."""
        wrong = [cell for cell in self.cells if cell.wrong is not None]
        return min(
            wrong,
            key=lambda cell: (cell.k, len(cell.wrong.emitted) if cell.wrong else 0),
            default=None,
        )

    def document(self) -> dict[str, Any]:
        """Ready for JSON, with the keys of docs/json_documents.md."""
        cell = self.shortest
        return {
            "verdict": "exact" if self.exact else "not exact",
            "subject": self.subject.name,
            "kind": self.subject.kind,
            "max_tv": self.worst.tv,
            "cases": len(self.cells),
            "cells": [
                {key: value for key, value in asdict(one).items() if key != "wrong"}
                for one in self.cells
            ],
            "first_wrong": None if cell is None else _wrong(cell),
        }


def audit_subject(value: Any, name: str | None = None) -> Proven:
    """Prove a rule, a drafter or a step function by enumeration; a string names one, as
    "mypackage.mymodule:my_step".

    name: what the report calls it. UsageError for anything else, and for chance that cannot be
    followed."""
    subject = (
        subject_named(value)
        if isinstance(value, str)
        else recognised(name or _called(value), value)
    )
    return prove_subject(subject)


def _called(value: Any) -> str:
    return str(getattr(value, "__name__", type(value).__name__))


def prove_subject(subject: Subject, tell: Tell = lambda what, done, total: None) -> Proven:
    """Enumerate every cell of a subject. UsageError where it cannot be followed, unless it was
    found wrong before."""
    makers = {"rule": _of_rule, "drafter": _of_drafter, "step": _of_step}[subject.kind](subject)
    cells = []
    for done, make in enumerate(makers):
        tell("proving cells", done, len(makers))
        try:
            cells.append(make())
        except UsageError:
            if all(cell.exact for cell in cells):
                raise
            break
    tell("proving cells", len(makers), len(makers))
    return Proven(subject, tuple(cells))


def _of_rule(subject: Subject) -> list[Callable[[], Cell]]:
    return [lambda cell=cell: _of_loop(*cell) for cell in cells_of_rule(subject.value)]  # type: ignore[misc]


def _of_drafter(subject: Subject) -> list[Callable[[], Cell]]:
    return [lambda cell=cell: _of_loop(*cell) for cell in cells_of_drafter(subject.value)]  # type: ignore[misc]


def _of_loop(case: Any, made: Any) -> Cell:
    found = examine(case, made)
    return Cell(
        case.pair,
        case.num_speculative_tokens,
        found.tv,
        found.tokens_per_round,
        draft=case.draft,
        rule=case.rule,
        key_repeated=found.key_repeated,
        wrong=found.wrong,
    )


def _of_step(subject: Subject) -> list[Callable[[], Cell]]:
    return [
        lambda name=name, k=k: _step_cell(subject.value, name, k)  # type: ignore[misc]
        for name, lengths in {
            TWO_TOKENS: LENGTHS,
            **dict.fromkeys(PAIRS, LENGTHS[:2]),
            LONGEST_ON: LENGTHS,
        }.items()
        for k in lengths
    ]


def _step_cell(step: Any, name: str, k: int) -> Cell:
    p, q = _laws(name)
    loop = StepLoop(step, p, q, k, PROMPT, HORIZON)
    law, reference = loop.law(), loop.target_law()
    wrong = first_wrong(law, reference, (), loop.expand, lambda emitted: emitted)
    return Cell(name, k, total_variation(law, reference), loop.tokens_per_round(), wrong=wrong)


def _laws(name: str) -> tuple[Any, Any]:
    """The target's and the drafter's law as functions of a prefix."""
    if name != TWO_TOKENS:
        return pairs()[name].target.law, pairs()[name].draft.law
    return lambda prefix: np.array(
        [0.7, 0.3] if sum(prefix) % 2 else [0.2, 0.8]
    ), lambda prefix: np.array([0.5, 0.5] if len(prefix) % 2 else [0.9, 0.1])


def _wrong(cell: Cell) -> dict[str, Any]:
    assert cell.wrong is not None
    found = cell.wrong
    named = {
        key: value
        for key, value in (("draft", cell.draft), ("rule", cell.rule))
        if value is not None
    }
    return {
        "models": cell.models,
        "k": cell.k,
        **named,
        "context": [*PROMPT, *found.emitted],
        "num_prompt_tokens": len(PROMPT),
        "target_law": _named(found.target_law),
        "loop_law": _named(found.loop_law),
        "token": found.token,
        "ways": [asdict(way) for way in found.ways],
    }


def _named(law: dict[int | None, float]) -> dict[str, float]:
    return {"end" if token is None else str(token): share for token, share in law.items()}
