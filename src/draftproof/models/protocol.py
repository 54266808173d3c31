"""The narrow waist towards models: what any language model must offer to be a target or a draft model.

`extend_many` is the only forward primitive. A method that needs a forward pass does not call it: it *yields* a `Step` and is
sent the `Output`. Whoever drives the generators can therefore put the steps of many sequences into one pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from draftproof.core.records import Array


@runtime_checkable
class Session(Protocol):
    """One sequence being read by a model: the tokens it has read so far, with whatever state that left behind."""

    model: LanguageModel

    @property
    def length(self) -> int:
        """Number of tokens read."""

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens read. Undefined between a tree pass and the `keep` or `rollback` that follows it."""

    def rollback(self, length: int) -> None:
        """Forget everything after the first `length` tokens. Absolute and idempotent; raises when length > self.length."""

    def keep(self, path: Sequence[int]) -> None:
        """After `extend` with parents: keep only the tokens at these indices of that call (a root-down path), in order."""

    def close(self) -> None:
        """Free what the session holds. Idempotent."""


@dataclass(frozen=True)
class Step:
    """One sequence's part of a forward pass.

    tokens: ids to read after what the session has read. parents: for each token the index, in `tokens`, of the token it
    follows; -1 follows the session's last token; None means a chain. rows: indices into `tokens` whose logits are wanted
    (None: all). hidden: ids of layers whose hidden states are wanted for every token.
    """

    session: Session
    tokens: Sequence[int]
    parents: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    hidden: Sequence[int] = ()


@dataclass(frozen=True)
class Output:
    """logits: [len(rows), vocab_size], the row after each wanted token. hidden: layer id -> [len(tokens), width]."""

    logits: Array
    hidden: Mapping[int, Array] = field(default_factory=dict)


@runtime_checkable
class LanguageModel(Protocol):
    """A causal language model over `vocab_size` token ids.

    name: for messages. max_length: how many tokens a session can hold, None when unbounded. supports_trees: whether `extend`
    takes parents that are not a chain. eos_token_ids: the ids that end its text, possibly none.
    """

    name: str
    vocab_size: int
    max_length: int | None
    supports_trees: bool
    eos_token_ids: tuple[int, ...]

    def open(self) -> Session:
        """A new, empty session."""

    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        """Read every step's tokens (sessions of this model, each at most once), in one pass where possible."""


def extend(step: Step) -> Output:
    """The case of one."""
    return step.session.model.extend_many([step])[0]
