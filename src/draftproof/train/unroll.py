"""A head's guesses for all rows of a batch at once, several positions ahead: what training and held-out acceptance are made of.

For EAGLE heads this is the training-time test of 2503.01840: step i reads, at every row, the text's token i + 1 places on and
the head's own output of step i - 1, just as drafting does after i accepted drafts. A row of step i then sees the rows of step 0
up to its own, which stand for true features, and its own rows of steps 1 to i: the drafted tokens on the way.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from draftproof.heads.eagle import Eagle
from draftproof.heads.eagle3 import Eagle3
from draftproof.heads.layer import attention
from draftproof.heads.medusa import Medusa
from draftproof.train.states import States

Head = Medusa | Eagle | Eagle3


def guesses(head: Head, states: States, steps: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(ahead, the features [m, width] that guess, draft logits [m, D]) for ahead = 1 .. steps, rows as `States.chosen` has
    them. Ends early where no text is long enough."""
    for ahead, features in enumerate(unrolled(head, states, steps), 1):
        if not states.rows(ahead):
            return
        chosen = states.chosen(features, ahead)
        if isinstance(head, Medusa):
            yield ahead, chosen, head.logits(chosen, ahead - 1)
        else:
            yield ahead, chosen, head.logits(chosen)


def unrolled(head: Head, states: States, steps: int) -> Iterator[Tensor]:
    """The features [batch, n, width] from which step 1, 2, ... guesses."""
    if isinstance(head, Medusa):
        hidden = states.hidden[head.config.hidden_layer].to(head.lm_heads[0].weight.dtype)  # type: ignore[arg-type]
        for _ in range(min(steps, head.config.num_heads)):
            yield hidden
        return
    features = head.fuse(states.hidden)
    attend = UnrolledAttention()
    places = torch.arange(states.tokens.shape[1], device=states.tokens.device).expand_as(states.tokens)
    for step in range(steps):
        shifted = torch.zeros_like(states.tokens)
        if step + 1 < states.tokens.shape[1]:
            shifted[:, : -(step + 1)] = states.tokens[:, step + 1 :]
        features = head.read(shifted, features, places + step, attend)
        yield features


class UnrolledAttention:
    """Attention of one training-time test: called once a step, it keeps the keys and values of the steps before."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """[batch, heads, n, width] of one step -> the same shape."""
        groups = queries.shape[1] // keys.shape[1]
        self._keys.append(keys.repeat_interleave(groups, dim=1))
        self._values.append(values.repeat_interleave(groups, dim=1))
        if len(self._keys) == 1:
            return attention(queries, self._keys[0], self._values[0], causal=True)
        scale = queries.shape[-1] ** -0.5
        n = queries.shape[2]
        past = torch.ones(n, n, dtype=torch.bool, device=queries.device).tril()
        scores = (queries @ self._keys[0].transpose(-1, -2) * scale).masked_fill(~past, -torch.inf)
        own = torch.stack([(queries * earlier).sum(-1) * scale for earlier in self._keys[1:]], dim=-1)
        weights = torch.cat([scores, own], dim=-1).softmax(dim=-1)
        out = weights[..., :n] @ self._values[0]
        for i, earlier in enumerate(self._values[1:]):
            out = out + weights[..., n + i, None] * earlier
        return out
