"""Acceptance on texts a head has not seen, position by position, as verification counts it.

A text the target wrote at temperature T is a draw from the very law that verification uses, so no
sampling is needed: of a draft that begins at row t, the chance to have every position up to i
accepted is the mean, over the target's own continuations x, of the product over j < i of min(1,
draft_law(x_j) / target_law(x_j)), times sum_x min(target_law, draft_law) at position i. Both laws
are at the text's own temperature; at temperature 0 each factor says whether the likeliest tokens
agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.medusa import Medusa
from draftproof.train.states import COLDEST, States
from draftproof.train.unroll import Head, guesses


@dataclass(frozen=True)
class Acceptance:
    """marginal[i]: the chance that positions 1 .. i + 1 of a draft are all accepted.
    conditional[i]: the same given that those before were. overlap[i]: mean of 1 - TV with the
    text's own tokens as what came before. rows[i]: rows behind it."""

    marginal: tuple[float, ...]
    conditional: tuple[float, ...]
    overlap: tuple[float, ...]
    rows: tuple[int, ...]

    @classmethod
    def of(cls, marginal: Sequence[float], overlap: Sequence[float], rows: int) -> Acceptance:
        """From both by position, all over the same rows."""
        before = [1.0, *marginal[:-1]]
        conditional = tuple(
            now / prior if prior > 0 else 0.0 for now, prior in zip(marginal, before, strict=True)
        )
        return cls(tuple(marginal), conditional, tuple(overlap), (rows,) * len(marginal))

    @property
    def mean_acceptance_length(self) -> float:
        """1 + the expected number of accepted drafts."""
        return 1.0 + sum(self.marginal)


def held_out(head: Head, batches: Iterable[States], steps: int) -> Acceptance:
    """Acceptance over all rows of `batches`, whose laws are at their texts' temperatures, for
    drafts of `steps` positions. Only rows from which all of them can be seen count, so that all
    positions are means over the same rows."""
    marginal = torch.zeros(steps, dtype=torch.float64)
    overlap, count = torch.zeros(steps, dtype=torch.float64), 0
    with torch.no_grad():
        for states in batches:
            found = _accepted(head, states, steps)
            if found is None:
                continue
            reached, overlaps = found
            marginal += (reached * overlaps).sum(1).double().cpu()
            overlap += overlaps.sum(1).double().cpu()
            count += reached.shape[1]
    if count == 0:
        return Acceptance((0.0,) * steps, (0.0,) * steps, (0.0,) * steps, (0,) * steps)
    return Acceptance.of((marginal / count).tolist(), (overlap / count).tolist(), count)


def _accepted(head: Head, states: States, steps: int) -> tuple[Tensor, Tensor] | None:
    """(chance to have reached [steps, m], overlap there [steps, m]) for the m rows from which
    `steps` positions can be seen."""
    kept = states.rows(steps)
    if not any(kept):
        return None
    reach: list[Tensor] = []
    overlaps: list[Tensor] = []
    ratio: Tensor | None = None
    heat = states.heat(steps).clamp_min(COLDEST)
    for ahead, _, logits in guesses(head, states, steps):
        chosen = _same_rows(states, ahead, steps)
        target = states.labels(states.log_laws, ahead)[chosen].exp()
        draft = torch.softmax(logits[chosen].float() / heat[:, None], dim=-1)
        if isinstance(head, Medusa):  # its drafts are its likeliest tokens, not draws
            draft = torch.nn.functional.one_hot(draft.argmax(-1), draft.shape[-1]).to(draft.dtype)
        labels = _draft_index(head, states.targets(ahead)[chosen])
        reach.append(torch.ones(len(chosen), device=logits.device) if ratio is None else ratio)
        overlaps.append(torch.minimum(target, draft).sum(-1))
        known = labels >= 0
        p = target.gather(-1, labels.clamp_min(0)[:, None])[:, 0]
        q = draft.gather(-1, labels.clamp_min(0)[:, None])[:, 0]
        step = torch.where(
            known & (p > 0), (q / p.clamp_min(1e-30)).clamp_max(1.0), torch.zeros_like(p)
        )
        ratio = step if ratio is None else ratio * step
    if len(reach) < steps:
        return None
    return torch.stack(reach), torch.stack(overlaps)


def _same_rows(states: States, ahead: int, steps: int) -> Tensor:
    """Of the rows trained `ahead` positions on, the indices of those also trained `steps` positions
    on."""
    first = 0
    indices: list[int] = []
    for rows, long in zip(states.rows(ahead), states.rows(steps), strict=True):
        indices += range(first, first + len(long))
        first += len(rows)
    return torch.tensor(indices, dtype=torch.long, device=states.device)


def _draft_index(head: Head, tokens: Tensor) -> Tensor:
    """The draft vocabulary's index of each of the target's tokens; -1 where it has none."""
    if not isinstance(head, Eagle3):
        return tokens
    index = torch.full((head.vocab_size,), -1, dtype=torch.long, device=tokens.device)
    index[head.draft_ids] = torch.arange(len(head.d2t), device=tokens.device)
    return index[tokens]
