"""What a training trains: something with weights, a loss on a batch of texts, and acceptance on
held-out ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.medusa import Medusa
from draftproof.models.protocol import LanguageModel
from draftproof.train.heldout import Acceptance, held_out
from draftproof.train.losses import LOSSES, feature_distance
from draftproof.train.states import States, StateSource, fresh_states
from draftproof.train.store import Text
from draftproof.train.unroll import Head, guesses


@dataclass(frozen=True)
class Aim:
    """What a loss is made of at one step. unroll: positions ahead. decay: weight of each against
    the one before. loss: a name in LOSSES. feature_weight: of EAGLE's feature loss, the other then
    weighing 0.1. temperature: of the laws that the loss compares; None: each text's own."""

    unroll: int
    decay: float
    loss: str
    feature_weight: float
    temperature: float | None = 1.0


WARM_ENOUGH = 0.3
"""The lowest temperature a draft law is trained at: below, it has no gradient where its likeliest
token is the wrong one."""


class Task(Protocol):
    """module: whose parameters are trained. positions: of a draft, at most; None for as many as
    wished."""

    module: nn.Module
    positions: int | None

    def loss(self, texts: Sequence[Text], aim: Aim) -> Tensor:
        """The loss of a batch, a scalar with a gradient."""

    def acceptance(self, texts: Sequence[Text], steps: int, batch_size: int) -> Acceptance:
        """On texts it was not trained on, each at its own temperature."""


class HeadTask:
    """A head on the hidden states of its target. states: where they come from, None: a pass of the
    target for every batch."""

    def __init__(
        self, target: LanguageModel, head: Head, states: StateSource | None = None
    ) -> None:
        self.head = head
        self.module: nn.Module = head
        self.positions = head.config.num_heads if isinstance(head, Medusa) else None
        ids = head.draft_ids if isinstance(head, Eagle3) else None
        self._states = states or fresh_states(target, head.hidden_layers, ids)

    def loss(self, texts: Sequence[Text], aim: Aim) -> Tensor:
        return training_loss(self.head, self._states(texts, aim.temperature), aim)

    def acceptance(self, texts: Sequence[Text], steps: int, batch_size: int) -> Acceptance:
        batches = (
            self._states(texts[i : i + batch_size], None) for i in range(0, len(texts), batch_size)
        )
        return held_out(self.head, batches, steps)


def training_loss(head: Head, states: States, aim: Aim) -> Tensor:
    """The loss of one batch: positions ahead weighted by decay ** i, each the mean over its rows;
    for `eagle` the distance of the predicted features joins in. Rows whose likeliest token is
    outside the draft vocabulary are left out. Laws are compared at the temperatures of `states`,
    the draft's at WARM_ENOUGH at least."""
    loss_of = LOSSES[aim.loss]
    total = torch.zeros((), device=states.device)
    for ahead, features, logits in guesses(head, states, aim.unroll):
        log_law = states.labels(states.log_laws, ahead).to(logits.device)
        scores = (
            logits.float() / states.heat(ahead).to(logits.device).clamp_min(WARM_ENOUGH)[:, None]
        )
        if isinstance(head, Eagle3):
            inside = head.t2d[states.labels(states.best, ahead)]
            scores, log_law = scores[inside], log_law[inside]
        rows = loss_of(scores, log_law)
        if isinstance(head, Eagle3):
            loss = rows.sum() / max(1, len(rows))
        elif isinstance(head, Eagle) and aim.feature_weight > 0:
            true = _true_features(head, states, ahead)
            loss = aim.feature_weight * feature_distance(features, true).mean() + 0.1 * rows.mean()
        else:
            loss = rows.mean()
        total = total + aim.decay ** (ahead - 1) * loss
    return total


def _true_features(head: Eagle, states: States, ahead: int) -> Tensor:
    """The target's own features where the rows trained `ahead` positions on predict them [m,
    width]."""
    rows = [range(rows.start + ahead, rows.stop + ahead) for rows in states.rows(ahead)]
    return states.chosen(states.hidden[head.hidden_layers[0]], rows)
