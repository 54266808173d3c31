"""Heads as models whose passes can be joined: what drafters of a batch ask of one head is read
together.

A head reads more than tokens, so its `Step` carries features as well. Gradients are never wanted
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from draftproof.heads.feature_head import FeatureHead, Rows, RowsRead, read_together
from draftproof.models.protocol import LanguageModel, Output, Step

if TYPE_CHECKING:
    from draftproof.heads.medusa import Medusa

FEATURES = 0
"""The id under which an `Output` carries the features of all rows."""


@dataclass(frozen=True)
class HeadStep(Step):
    """A step of a head. features: [n, width], or the state [width] that Medusa's heads read.
    positions: of the rows, or the number of Medusa's head. sees: as in `RowsRead`."""

    features: Any = None
    positions: Sequence[int] = ()
    sees: Any = None


class HeadPasses(LanguageModel):
    """What both kinds of head have in common."""

    max_length = None
    supports_trees = True
    eos_token_ids = ()

    def __init__(self, head: Any, name: str, vocab_size: int) -> None:
        self.head, self.name, self.vocab_size = head, name, vocab_size

    def open(self) -> Rows:
        return Rows(self.head, self)


class FeaturePasses(HeadPasses):
    """An EAGLE head: logits over the target's vocabulary of the rows wanted, and the features of
    all."""

    def __init__(self, head: FeatureHead, name: str) -> None:
        super().__init__(head, name, head.vocab_size)

    @torch.no_grad()
    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        parts = [_part(step) for step in steps]
        features = read_together(self.head, parts)
        wanted = [
            states if step.rows is None else states[list(step.rows)]
            for step, states in zip(steps, features, strict=True)
        ]
        logits = self.head.spread(self.head.logits(torch.cat(wanted))).split(
            [len(rows) for rows in wanted]
        )
        return [
            Output(rows, {FEATURES: states}) for rows, states in zip(logits, features, strict=True)
        ]


class MedusaPasses(HeadPasses):
    """Medusa's heads: logits [1, vocab] of one head for each step."""

    def __init__(self, heads: Medusa, name: str) -> None:
        super().__init__(heads, name, heads.config.vocab_size)

    @torch.no_grad()
    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        asked = [_medusa(step) for step in steps]
        logits: dict[int, Any] = {}
        for number in sorted({head for head, _ in asked}):
            places = [place for place, (head, _) in enumerate(asked) if head == number]
            rows = self.head.logits(torch.stack([asked[place][1] for place in places]), number)
            logits.update(zip(places, rows.split(1), strict=True))
        return [Output(logits[place]) for place in range(len(steps))]


def _part(step: Step) -> RowsRead:
    assert isinstance(step, HeadStep)
    assert isinstance(step.session, Rows)
    return RowsRead(step.session, step.tokens, step.features, step.positions, step.sees)


def _medusa(step: Step) -> tuple[int, Any]:
    assert isinstance(step, HeadStep)
    return step.positions[0], step.features
