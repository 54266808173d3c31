"""What EAGLE heads of all generations have in common: they read (next token, feature) rows and give features that can be read
again, from which logits over the draft vocabulary come.

Row t holds the embedding of token t + 1 and the target's feature after token t; its output guesses token t + 2. A drafted token
continues with the head's own output in place of the feature. `Rows` keeps the keys and values of what was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from draftproof.heads.layer import Attend, attention


class FeatureHead(Protocol):
    """hidden_layers: ids of the target's hidden states it fuses. longest: positions it can hold, None when unbounded."""

    hidden_layers: tuple[int, ...]
    vocab_size: int
    longest: int | None

    def fuse(self, hidden: Mapping[int, Any]) -> Tensor:
        """Hidden states by layer, each [..., target width], -> features [..., width]."""

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """tokens, positions [batch, n], features [batch, n, width] -> features [batch, n, width] one token further."""

    def logits(self, features: Tensor) -> Tensor:
        """[..., width] -> [..., draft vocabulary]."""

    def spread(self, logits: Tensor) -> Tensor:
        """Logits over the draft vocabulary -> over the target's, -inf where the head has no token."""


class Rows:
    """The rows one sequence has read: keys and values [kv heads, n, width]. Tensors are replaced, never written to."""

    def __init__(self, head: FeatureHead) -> None:
        self._head = head
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def length(self) -> int:
        """Rows read and not forgotten."""
        return 0 if self._keys is None else self._keys.shape[1]

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` rows."""
        if self._keys is not None and self._values is not None and length < self.length:
            self._keys, self._values = self._keys[:, :length], self._values[:, :length]

    def read(self, tokens: Sequence[int], features: Tensor, positions: Sequence[int], sees: Tensor | None = None) -> Tensor:
        """Read rows after those kept: features [n, width] -> [n, width].

        sees [n, length + n]: which rows each new one may look at, itself included; None for a chain."""
        device = features.device

        def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            keys, values = keys[0], values[0]
            before = self.length
            if self._keys is not None and self._values is not None:
                keys, values = torch.cat([self._keys, keys], dim=1), torch.cat([self._values, values], dim=1)
            self._keys, self._values = keys, values
            mask = sees
            if mask is None and before > 0 and len(tokens) > 1:
                mask = torch.ones(len(tokens), keys.shape[1], dtype=torch.bool, device=device).tril(before)
            chain_alone = mask is None and before == 0
            return attention(queries, keys[None], values[None], mask, causal=chain_alone and len(tokens) > 1)

        ids = torch.tensor([list(tokens)], device=device)
        places = torch.tensor([list(positions)], device=device)
        return self._head.read(ids, features[None], places, attend)[0]


def as_tensor(states: Any, like: Tensor) -> Tensor:
    """Hidden states, a tensor or a NumPy array, in the dtype and on the device of a head's weight."""
    return torch.as_tensor(states).to(device=like.device, dtype=like.dtype)
