"""A head's guesses for all rows of a batch at once, several positions ahead: what training and
held-out acceptance are made of.

For EAGLE heads this is the training-time test of 2503.01840: step i reads, at every row, the text's
token i + 1 places on and the head's own output of step i - 1, just as drafting does after i
accepted drafts. A row of step i then sees the rows of step 0 up to its own, which stand for true
features, and its own rows of steps 1 to i: the drafted tokens on the way.

The rows of all texts lie one after another without padding. Step 0 reads the prompts too, whose
keys and values are seen; the steps after it read trained rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.layer import attention
from draftproof.heads.medusa import Medusa
from draftproof.train.states import States

Head = Medusa | Eagle | Eagle3


def guesses(head: Head, states: States, steps: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(ahead, the features [m, width] that guess, draft logits [m, D]) for ahead = 1 .. steps, over
    the rows trained `ahead` positions on. Ends early where no text is long enough."""
    for ahead, features in enumerate(unrolled(head, states, steps), 1):
        yield (
            ahead,
            features,
            head.logits(features, ahead - 1) if isinstance(head, Medusa) else head.logits(features),
        )


def unrolled(head: Head, states: States, steps: int) -> Iterator[Tensor]:
    """The features [m, width] from which the rows trained 1, 2, ... positions on guess."""
    if isinstance(head, Medusa):
        hidden = states.hidden[head.config.hidden_layer]
        for ahead in range(1, min(steps, head.config.num_heads) + 1):
            if any(states.rows(ahead)):
                yield states.chosen(hidden, states.rows(ahead)).to(head.lm_heads[0].weight.dtype)  # type: ignore[arg-type]
        return
    kept = states.rows(1)
    read = [range(rows.stop) for rows in kept]
    features = head.fuse(
        {layer: states.chosen(states.hidden[layer], read) for layer in head.hidden_layers}
    )
    attend = UnrolledAttention()
    for step in range(steps):
        kept = states.rows(step + 1)
        if not any(kept):
            return
        places = torch.tensor([row for rows in read for row in rows], device=states.device)
        attend.rows = read
        out = head.read(
            states.tokens(read, step + 1)[None], features[None], places[None] + step, attend
        )[0]
        features = _narrowed(out, read, kept)
        yield features
        longer = states.rows(step + 2)
        features, read = _narrowed(features, kept, longer), longer


def _narrowed(features: Tensor, have: Sequence[range], wanted: Sequence[range]) -> Tensor:
    """Of rows that lie one after another, those that are wanted."""
    parts = features.split([len(rows) for rows in have])
    offsets = [rows.start - before.start for before, rows in zip(have, wanted, strict=True)]
    pairs = zip(parts, offsets, wanted, strict=True)
    return torch.cat([part[offset : offset + len(rows)] for part, offset, rows in pairs])


class UnrolledAttention:
    """Attention of one training-time test: called once a step with that step's `rows` of every
    text, the first time with all from row 0. It keeps the keys and values of the steps before."""

    def __init__(self) -> None:
        self.rows: Sequence[range] = ()
        self._kept: list[list[tuple[int, Tensor, Tensor]]] = []

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """[1, heads, m, width] of one step, grouped heads allowed -> the shape of the queries."""
        sizes = [len(rows) for rows in self.rows]
        split = [part[0].split(sizes, dim=1) for part in (queries, keys, values)]
        if not self._kept:
            self._kept = [[] for _ in self.rows]
        texts = zip(*split, self.rows, self._kept, strict=True)
        outs = [self._of_text(q, k, v, rows, kept) for q, k, v, rows, kept in texts]
        return torch.cat(outs, dim=1)[None]

    @staticmethod
    def _of_text(
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        rows: range,
        kept: list[tuple[int, Tensor, Tensor]],
    ) -> Tensor:
        """[heads, rows, width] of one text -> the same."""
        groups = queries.shape[0] // keys.shape[0]
        keys, values = (
            keys.repeat_interleave(groups, dim=0),
            values.repeat_interleave(groups, dim=0),
        )
        kept.append((rows.start, keys, values))
        if len(kept) == 1:
            return attention(queries[None], keys[None], values[None], causal=True)[0]
        scale, n = queries.shape[-1] ** -0.5, len(rows)
        _, true_keys, true_values = kept[0]
        past = torch.ones(n, true_keys.shape[1], dtype=torch.bool, device=queries.device).tril(
            rows.start
        )
        scores = (queries @ true_keys.transpose(-1, -2) * scale).masked_fill(~past, -torch.inf)
        own = [
            (start, k[:, rows.start - start :][:, :n], v[:, rows.start - start :][:, :n])
            for start, k, v in kept[1:]
        ]
        of_own = torch.stack([(queries * k).sum(-1) * scale for _, k, _ in own], dim=-1)
        weights = torch.cat([scores, of_own], dim=-1).softmax(dim=-1)
        out = weights[..., : true_keys.shape[1]] @ true_values
        for i, (_, _, v) in enumerate(own):
            out = out + weights[..., true_keys.shape[1] + i, None] * v
        return out
