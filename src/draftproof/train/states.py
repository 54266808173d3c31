"""A target's hidden states and laws over texts, made when needed and thrown away again.

They come from `extend_many`, the very primitive that verifies drafts, so a head trains on the
states it will be given. Nothing is written to disk; a batch of them lies in memory at a time.
(`cache.py` keeps them on disk, for those who ask for it.)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.models.protocol import LanguageModel, Step
from draftproof.train.alignment import trained_rows
from draftproof.train.store import Text

COLDEST = 1e-4
"""Stands for temperature 0, at which a law is its likeliest token."""


@dataclass(frozen=True)
class States:
    """What is known of the texts of one batch; rows of several texts always lie one after another,
    without padding.

    hidden: layer id -> one [tokens of the text or more rows, width] a text. log_laws: one [rows, D]
    a text, the logarithm of the target's law at the text's entry in `temperatures`, after the
    positions prompt .. length - 2, on the draft vocabulary. best: the target's likeliest token
    there [rows], over the whole vocabulary."""

    texts: tuple[Text, ...]
    hidden: dict[int, tuple[Tensor, ...]]
    log_laws: tuple[Tensor, ...]
    best: tuple[Tensor, ...]
    temperatures: tuple[float, ...]

    @property
    def device(self) -> torch.device:
        """Of all tensors."""
        return self.log_laws[0].device

    def rows(self, ahead: int) -> list[range]:
        """The rows trained `ahead` positions on, of every text; some may have none."""
        return [trained_rows(len(text.tokens), text.prompt, ahead) for text in self.texts]

    def tokens(self, rows: Sequence[range], shift: int) -> Tensor:
        """The tokens `shift` positions after the given rows of every text [m]."""
        pairs = zip(self.texts, rows, strict=True)
        ids = [
            token
            for text, chosen in pairs
            for token in text.tokens[chosen.start + shift : chosen.stop + shift]
        ]
        return torch.tensor(ids, dtype=torch.long, device=self.device)

    def heat(self, ahead: int) -> Tensor:
        """The temperature of the laws of the rows trained `ahead` positions on [m]."""
        pairs = zip(self.temperatures, self.rows(ahead), strict=True)
        return torch.tensor([heat for heat, rows in pairs for _ in rows], device=self.device)

    def chosen(self, features: Sequence[Tensor], rows: Sequence[range]) -> Tensor:
        """The given rows of one tensor a text: [m, ...]."""
        return torch.cat(
            [one[chosen.start : chosen.stop] for one, chosen in zip(features, rows, strict=True)]
        )

    def labels(self, per_text: Sequence[Tensor], ahead: int) -> Tensor:
        """What the rows trained `ahead` positions on are measured by, out of `log_laws` or `best`:
        [m, ...]."""
        begins = [
            ahead + rows.start - text.prompt
            for text, rows in zip(self.texts, self.rows(ahead), strict=True)
        ]
        lengths = [len(rows) for rows in self.rows(ahead)]
        return self.chosen(
            per_text, [range(begin, begin + n) for begin, n in zip(begins, lengths, strict=True)]
        )

    def targets(self, ahead: int) -> Tensor:
        """The tokens that the trained rows guess `ahead` positions on [m]."""
        return self.tokens(self.rows(ahead), 1 + ahead)


StateSource = Callable[[Sequence[Text], float | None], States]
"""(texts, temperature of the laws; None: each text's own) -> their states."""


def fresh_states(
    target: LanguageModel, layers: Sequence[int], draft_ids: Tensor | None = None
) -> StateSource:
    """States made anew by a pass of the target each time."""
    return lambda texts, temperature: show_states(
        target, texts, layers, draft_ids, temperature=temperature
    )


def heats(texts: Sequence[Text], temperature: float | None) -> list[float]:
    """The temperature of each text's laws: `temperature`, or with None the one it was written at, 1
    where that is unknown."""
    return [
        temperature if temperature is not None else 1.0 if t.temperature is None else t.temperature
        for t in texts
    ]


def show_states(
    target: LanguageModel,
    texts: Sequence[Text],
    layers: Sequence[int],
    draft_ids: Tensor | None = None,
    *,
    temperature: float | None = 1.0,
) -> States:
    """One pass of the target over `texts`. draft_ids: the draft vocabulary, None for the target's
    own. temperature: of the laws; None: the one each text was written at, 1 where that is not
    known."""
    layers = tuple(dict.fromkeys(layers))
    warmth = heats(texts, temperature)
    hidden, logits = read_texts_by(target, texts, layers)
    laws, best = [], []
    for scores, heat in zip(logits, warmth, strict=True):
        logs = (scores / max(heat, COLDEST)).log_softmax(dim=-1)
        laws.append(logs if draft_ids is None else logs[:, draft_ids.to(logs.device)])
        best.append(scores.argmax(dim=-1))
    return States(tuple(texts), hidden, tuple(laws), tuple(best), tuple(warmth))


def read_texts_by(
    target: LanguageModel, texts: Sequence[Text], layers: Sequence[int]
) -> tuple[dict[int, tuple[Tensor, ...]], list[Tensor]]:
    """(hidden states [tokens, width] by layer and text, logits [rows, vocab] after the positions
    prompt .. length - 2 of every text), in float32, from one pass."""
    steps = []
    for text in texts:
        rows = tuple(range(text.prompt, len(text.tokens) - 1)) or (len(text.tokens) - 1,)
        steps.append(Step(target.open(), text.tokens, rows=rows, hidden=tuple(layers)))
    try:
        outputs = target.extend_many(steps)
    finally:
        for step in steps:
            step.session.close()
    hidden = {
        layer: tuple(torch.as_tensor(output.hidden[layer]).float() for output in outputs)
        for layer in layers
    }
    return hidden, [torch.as_tensor(output.logits).float() for output in outputs]
