"""What the target shows about texts while a head trains: hidden states and laws, made when needed and thrown away again.

They come from `extend_many`, the very primitive that verifies drafts, so a head trains on the states it will be given. Nothing
is written to disk; a batch of them lies in memory at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from draftproof.models.protocol import LanguageModel, Step
from draftproof.train.alignment import trained_rows
from draftproof.train.store import Text

COLDEST = 1e-4
"""Stands for temperature 0, at which a law is its likeliest token."""


@dataclass(frozen=True)
class States:
    """Texts of one batch, padded on the right to n tokens.

    tokens [batch, n]. hidden: layer id -> [batch, n, width]. log_laws: one [rows, D] a text, the logarithm of the target's
    law at
    the text's entry in `temperatures`, after the positions prompt .. length - 2, on the draft vocabulary. best: the target's
    likeliest token there [rows], over the whole vocabulary. texts: as they are."""

    texts: tuple[Text, ...]
    tokens: Tensor
    hidden: dict[int, Tensor]
    log_laws: tuple[Tensor, ...]
    best: tuple[Tensor, ...]
    temperatures: tuple[float, ...]

    def rows(self, ahead: int) -> list[tuple[int, range]]:
        """(place in the batch, rows trained `ahead` positions on) of every text that has any."""
        found = [(i, trained_rows(len(text.tokens), text.prompt, ahead)) for i, text in enumerate(self.texts)]
        return [(i, rows) for i, rows in found if len(rows)]

    def chosen(self, features: Tensor, ahead: int) -> Tensor:
        """The trained rows of [batch, n, ...], one after another: [m, ...]."""
        return torch.cat([features[i, rows.start : rows.stop] for i, rows in self.rows(ahead)])

    def labels(self, per_text: Sequence[Tensor], ahead: int) -> Tensor:
        """What the trained rows should be measured by, out of `log_laws` or `best`: [m, ...] in the order of `chosen`."""
        parts = []
        for i, rows in self.rows(ahead):
            first = rows.start + ahead - self.texts[i].prompt
            parts.append(per_text[i][first : first + len(rows)])
        return torch.cat(parts)

    def targets(self, ahead: int) -> Tensor:
        """The tokens that the trained rows guess `ahead` positions on [m]."""
        return torch.cat([self.tokens[i, rows.start + 1 + ahead : rows.stop + 1 + ahead] for i, rows in self.rows(ahead)])


def show_states(
    target: LanguageModel,
    texts: Sequence[Text],
    layers: Sequence[int],
    draft_ids: Tensor | None = None,
    *,
    temperature: float | None = 1.0,
) -> States:
    """One pass of the target over `texts`. draft_ids: the draft vocabulary, None for the target's own. temperature: of the
    laws;
    None: the one each text was written at, 1 where that is not known."""
    warmth = [temperature if temperature is not None else 1.0 if t.temperature is None else t.temperature for t in texts]
    steps = []
    for text in texts:
        rows = tuple(range(text.prompt, len(text.tokens) - 1))
        steps.append(
            Step(target.open(), text.tokens, rows=rows or (len(text.tokens) - 1,), hidden=tuple(dict.fromkeys(layers)))
        )
    try:
        outputs = target.extend_many(steps)
    finally:
        for step in steps:
            step.session.close()
    laws, best = [], []
    for output, heat in zip(outputs, warmth, strict=True):
        logits = torch.as_tensor(output.logits).float()
        logs = (logits / max(heat, COLDEST)).log_softmax(dim=-1)
        laws.append(logs if draft_ids is None else logs[:, draft_ids.to(logs.device)])
        best.append(logits.argmax(dim=-1))
    longest = max(len(text.tokens) for text in texts)
    device = laws[0].device
    tokens = torch.zeros(len(texts), longest, dtype=torch.long, device=device)
    for i, text in enumerate(texts):
        tokens[i, : len(text.tokens)] = torch.tensor(text.tokens)
    hidden = {layer: _padded([output.hidden[layer] for output in outputs], longest) for layer in dict.fromkeys(layers)}
    return States(tuple(texts), tokens, hidden, tuple(laws), tuple(best), tuple(warmth))


def _padded(states: Sequence[Any], length: int) -> Tensor:
    tensors = [torch.as_tensor(state).float() for state in states]
    out = tensors[0].new_zeros(len(tensors), length, tensors[0].shape[-1])
    for i, tensor in enumerate(tensors):
        out[i, : len(tensor)] = tensor
    return out
