"""What EAGLE heads of all generations have in common: they read (next token, feature) rows and give
features that can be read again, from which logits over the draft vocabulary come.

Row t holds the embedding of token t + 1 and the target's feature after token t; its output guesses
token t + 2. A drafted token continues with the head's own output in place of the feature. `Rows`
keeps the keys and values of what was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from draftproof.heads.layer import Attend, attention
from draftproof.models.protocol import Session


class FeatureHead(Protocol):
    """hidden_layers: ids of the target's hidden states it fuses. longest: positions it can hold,
    None when unbounded."""

    hidden_layers: tuple[int, ...]
    vocab_size: int
    longest: int | None

    def fuse(self, hidden: Mapping[int, Any]) -> Tensor:
        """Hidden states by layer, each [..., target width], -> features [..., width]."""

    def read(self, tokens: Tensor, features: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """tokens, positions [batch, n], features [batch, n, width] -> features [batch, n, width]
        one token further."""

    def logits(self, features: Tensor) -> Tensor:
        """[..., width] -> [..., draft vocabulary]."""

    def spread(self, logits: Tensor) -> Tensor:
        """Logits over the draft vocabulary -> over the target's, -inf where the head has no
        token."""


class Rows(Session):
    """The rows one sequence has read: keys and values [kv heads, n, width], and the token of each.
    Tensors are replaced, never written to. model: what joins the passes of several, if anything
    does (`draftproof.heads.passes`)."""

    can_fork = True

    def __init__(self, head: FeatureHead, model: Any = None) -> None:
        self.model = model
        self._head = head
        self._tokens: list[int] = []
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def length(self) -> int:
        """Rows read and not forgotten."""
        return 0 if self._keys is None else self._keys.shape[1]

    @property
    def tokens(self) -> Sequence[int]:
        """The token of every row."""
        return self._tokens

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` rows."""
        del self._tokens[length:]
        if self._keys is not None and self._values is not None and length < self.length:
            self._keys, self._values = self._keys[:, :length], self._values[:, :length]

    def keep(self, path: Sequence[int]) -> None:
        """Rows are read again after a draft, so none of a tree's is ever kept."""
        raise NotImplementedError("rows of a head are rolled back, not kept")

    def fork(self, length: int | None = None) -> Rows:
        other = Rows(self._head, self.model)
        other._tokens, other._keys, other._values = list(self._tokens), self._keys, self._values
        if length is not None:
            other.rollback(length)
        return other

    def close(self) -> None:
        """Free everything."""
        self._tokens, self._keys, self._values = [], None, None

    def read(
        self,
        tokens: Sequence[int],
        features: Tensor,
        positions: Sequence[int],
        sees: Tensor | None = None,
    ) -> Tensor:
        """Read rows after those kept: features [n, width] -> [n, width]. See `RowsRead`."""
        return read_together(self._head, [RowsRead(self, tokens, features, positions, sees)])[0]

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, sees: Tensor | None) -> Tensor:
        """Attention [1, heads, n, width] of new rows over those kept and themselves, which are kept
        from now on."""
        count, before = queries.shape[2], self.length
        keys, values = keys[0], values[0]
        if self._keys is not None and self._values is not None:
            keys, values = (
                torch.cat([self._keys, keys], dim=1),
                torch.cat([self._values, values], dim=1),
            )
        self._keys, self._values = keys, values
        if sees is None and before > 0 and count > 1:
            sees = torch.ones(count, keys.shape[1], dtype=torch.bool, device=queries.device).tril(
                before
            )
        causal = sees is None and count > 1
        return attention(queries, keys[None], values[None], sees, causal=causal)

    def note(self, tokens: Sequence[int]) -> None:
        """These rows have been read."""
        self._tokens.extend(tokens)


@dataclass(frozen=True)
class RowsRead:
    """One sequence's part of a pass: tokens and positions of n rows, features [n, width].

    sees [n, length + n]: which rows each new one may look at, itself included; None for a chain."""

    rows: Rows
    tokens: Sequence[int]
    features: Tensor
    positions: Sequence[int]
    sees: Tensor | None = None


def read_together(head: FeatureHead, parts: Sequence[RowsRead]) -> list[Tensor]:
    """The features [n, width] of every part, read in one pass: each sequence looks at its own rows,
    nothing is padded."""
    counts = [len(part.tokens) for part in parts]
    features = torch.cat([part.features for part in parts])
    ids = torch.tensor([[token for part in parts for token in part.tokens]], device=features.device)
    places = torch.tensor(
        [[place for part in parts for place in part.positions]], device=features.device
    )

    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        theirs = zip(
            parts,
            *(torch.split(states, counts, dim=2) for states in (queries, keys, values)),
            strict=True,
        )
        return torch.cat([part.rows.attend(q, k, v, part.sees) for part, q, k, v in theirs], dim=2)

    out = head.read(ids, features[None], places, attend)[0]
    for part in parts:
        part.rows.note(part.tokens)
    return list(torch.split(out, counts))


def as_tensor(states: Any, like: Tensor) -> Tensor:
    """Hidden states, a tensor or a NumPy array, in the dtype and on the device of a head's
    weight."""
    return torch.as_tensor(states).to(device=like.device, dtype=like.dtype)
