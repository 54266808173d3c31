"""A table model whose logits are torch float64 tensors, so that the production arithmetic can be
enumerated too."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from draftproof.models.protocol import LanguageModel, Output, Session, Step
from draftproof.models.table import TableModel


class TensorModel(LanguageModel):
    """`model` with logits as torch tensors."""

    supports_trees = True

    def __init__(self, model: TableModel) -> None:
        self._model = model
        self.name, self.vocab_size = model.name, model.vocab_size
        self.max_length, self.eos_token_ids = model.max_length, model.eos_token_ids

    def open(self) -> Session:
        session = self._model.open()
        session.model = self
        return session

    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        outputs = self._model.extend_many(steps)
        return [Output(torch.from_numpy(output.logits.copy())) for output in outputs]
