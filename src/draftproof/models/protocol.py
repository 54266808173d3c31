"""The narrow waist towards models: what any language model must offer to be a target or a draft
model.

`extend_many` is the only forward primitive. A method that needs a forward pass does not call it: it
*yields* a `Step` and is sent the `Output`. Whoever drives the generators can therefore put the
steps of many sequences into one pass.

A model of your own subclasses `LanguageModel` and `Session`. What is abstract or has no default
must be there; what has a default may be left out, and nothing else is ever asked of a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from draftproof.core.records import Array
from draftproof.errors import UsageError


class Session(ABC):
    """One sequence being read by a model: the tokens it has read so far, with whatever state that
    left behind.

    can_fork: whether `fork` gives a copy."""

    model: LanguageModel
    can_fork: bool = False

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of tokens read."""

    @property
    @abstractmethod
    def tokens(self) -> Sequence[int]:
        """The tokens read. Undefined between a tree pass and the `keep` or `rollback` that follows
        it."""

    @abstractmethod
    def rollback(self, length: int) -> None:
        """Forget everything after the first `length` tokens. Absolute and idempotent; raises when
        length > self.length."""

    @abstractmethod
    def keep(self, path: Sequence[int]) -> None:
        """After `extend` with parents: keep only the tokens at these indices of that call (a
        root-down path), in order."""

    def fork(self, length: int | None = None) -> Session:
        """Another session of the model that has read the first `length` tokens of this one, and
        shares nothing with it that either could change. None: all of them, with the choice that
        `keep` still has after a pass.

        UsageError where more than `self.length` tokens are asked for, and from sessions that cannot
        be copied."""
        raise UsageError(f"a session of {self.model.name} cannot be copied")

    @abstractmethod
    def close(self) -> None:
        """Free what the session holds. Idempotent."""


@dataclass(frozen=True)
class Step:
    """One sequence's part of a forward pass.

    tokens: ids to read after what the session has read. parents: for each token the index, in
    `tokens`, of the token it follows; -1 follows the session's last token; None means a chain.
    rows: indices into `tokens` whose logits are wanted (None: all). hidden: ids of layers whose
    hidden states are wanted for every token.
    """

    session: Session
    tokens: Sequence[int]
    parents: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    hidden: Sequence[int] = ()


@dataclass(frozen=True)
class Output:
    """logits: [len(rows), vocab_size], the row after each wanted token. hidden: layer id ->
    [len(tokens), width]."""

    logits: Array
    hidden: Mapping[int, Array] = field(default_factory=dict)


class LanguageModel(ABC):
    """A causal language model over `vocab_size` token ids.

    name: for messages. max_length: how many tokens a session can hold, None when unbounded.
    supports_trees: whether `extend` takes parents that are not a chain. eos_token_ids: the ids that
    end its text, possibly none.

    tokenizer: None for ids in and ids out. generation_config: the transformers one that says how it
    is sampled by default. limit_note: why `max_length` is less than one might expect. rows_mix: how
    rows of one pass influence each other, None when they do not: one that has a reason can draft
    and is refused as a target. pass_note: what keeps drafts from making it faster as a target.
    notes: what else whoever runs it should know.

    engine: what runs it. dtype: what it computes in. device: where, None for a host without torch;
    output_device: where logits and hidden states are handed out. quantization: what its weights
    were rounded to. rows: whether a row's logits were found to be the same bits whatever is read
    beside it; None: nobody looked.
    """

    name: str
    vocab_size: int
    max_length: int | None = None
    supports_trees: bool = False
    eos_token_ids: tuple[int, ...] = ()

    tokenizer: Any = None
    generation_config: Any = None
    limit_note: str | None = None
    rows_mix: str | None = None
    notes: tuple[str, ...] = ()

    engine: str = "torch"
    dtype: Any = "float64"
    device: Any = None
    output_device: Any = None
    quantization: str | None = None
    rows: str | None = None

    @abstractmethod
    def open(self) -> Session:
        """A new, empty session."""

    @abstractmethod
    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        """Read every step's tokens (sessions of this model, each at most once), in one pass where
        possible."""

    @cached_property
    def num_input_ids(self) -> int:
        """How many ids it can read, where its embedding has another size than its output."""
        return self.vocab_size

    @cached_property
    def module(self) -> Any:
        """The transformers module whose weights it runs; None for a model that shows none."""
        return None

    @property
    def pass_note(self) -> str | None:
        return None

    def session_bytes(self, num_tokens: int) -> int | None:
        """What a session of `num_tokens` tokens takes at most, in bytes; None when nobody can
        tell."""
        return None

    def deliver_to(self, device: Any) -> None:
        """Hand out logits and hidden states on `device` (a torch device) from now on; one without a
        device of its own stays."""
        return None


def extend(step: Step) -> Output:
    """The case of one."""
    return step.session.model.extend_many([step])[0]
