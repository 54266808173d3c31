"""Will a draft pay? Asked of two models and a text before anything is built on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.lazy import lazily

if TYPE_CHECKING:
    from draftproof.plan.alpha import alpha_per_position as alpha_per_position
    from draftproof.plan.candidate import Candidate as Candidate
    from draftproof.plan.document import plan_document as plan_document
    from draftproof.plan.plan import make_plan as make_plan
    from draftproof.plan.whatif import what_if as what_if
    from draftproof.plan.whole import plan_speculation as plan_speculation

__all__ = [
    "Candidate",
    "alpha_per_position",
    "make_plan",
    "plan_document",
    "plan_speculation",
    "what_if",
]

_HOMES = {
    "Candidate": "draftproof.plan.candidate",
    "alpha_per_position": "draftproof.plan.alpha",
    "make_plan": "draftproof.plan.plan",
    "plan_document": "draftproof.plan.document",
    "plan_speculation": "draftproof.plan.whole",
    "what_if": "draftproof.plan.whatif",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)
