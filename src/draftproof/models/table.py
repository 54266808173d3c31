"""`TableModel`: a language model whose next-token laws are given by hand. NumPy only, exact,
public.

The fake that tests, proofs, labs and simulations run on: a table [vocab, vocab] (the law given the
last token) or a function from the prefix to a law. It is a full `LanguageModel`: sessions, trees,
rollback, a context limit, hidden states if given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel, Output, Session, Step

LawFunction = Callable[[tuple[int, ...]], ArrayLike]

_MOST_ROWS = 4096
"""Rows of logits kept: a law by function is asked again for prefixes that fell out."""


class TableModel(LanguageModel):
    """laws: a table [vocab, vocab] of rows summing to 1, or a function (prefix) -> [vocab].

    vocab_size is needed with a function. max_length: context limit in tokens. eos_token_ids: ids
    that end a text. hidden: optional function (prefix, layer) -> vector, the hidden state after the
    prefix."""

    supports_trees = True

    def __init__(
        self,
        laws: ArrayLike | LawFunction,
        *,
        vocab_size: int | None = None,
        max_length: int | None = None,
        eos_token_ids: Sequence[int] = (),
        hidden: Callable[[tuple[int, ...], int], ArrayLike] | None = None,
        name: str = "table",
    ) -> None:
        self._is_markov = not callable(laws)
        if callable(laws):
            if vocab_size is None:
                raise UsageError("TableModel needs vocab_size when the laws are a function")
            self._law, self.vocab_size = laws, vocab_size
        else:
            table = _checked_table(laws)
            self._law, self.vocab_size = (lambda prefix: table[prefix[-1]]), len(table)
        self.name, self.max_length, self._hidden = name, max_length, hidden
        self.eos_token_ids = tuple(eos_token_ids)
        outside = [token for token in self.eos_token_ids if not 0 <= token < self.vocab_size]
        if outside:
            raise UsageError(
                f"eos_token_ids has token id {outside[0]}; allowed: ids from 0 to "
                f"{self.vocab_size - 1}"
            )
        self._logits: dict[tuple[int, ...], NDArray[np.float64]] = {}

    def law(self, prefix: Sequence[int]) -> NDArray[np.float64]:
        """The law [vocab] of the token after `prefix`."""
        return np.asarray(self._law(tuple(prefix)), dtype=np.float64)

    def open(self) -> TableSession:
        return TableSession(self)

    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        return [step.session.read(step) for step in steps]  # type: ignore[attr-defined]

    def logits(self, prefix: tuple[int, ...]) -> NDArray[np.float64]:
        """log of the law after `prefix` [vocab]; -inf where it is zero."""
        prefix = prefix[-1:] if self._is_markov else prefix
        row = self._logits.get(prefix)
        if row is None:
            if len(self._logits) >= _MOST_ROWS:
                self._logits.clear()
            with np.errstate(divide="ignore"):
                row = np.log(self.law(prefix))
            row.setflags(write=False)
            self._logits[prefix] = row
        return row

    def hidden(self, prefix: tuple[int, ...], layer: int) -> NDArray[np.float64]:
        if self._hidden is None:
            raise UsageError(
                f"{self.name} has no hidden states; give TableModel a `hidden` function"
            )
        return np.asarray(self._hidden(prefix, layer), dtype=np.float64)


class TableSession(Session):
    """The tokens read so far; after a tree pass, the candidates that `keep` chooses from."""

    can_fork = True

    def __init__(self, model: TableModel) -> None:
        self.model = model
        self._table = model
        self._tokens: tuple[int, ...] = ()
        self._tree: tuple[Step, int] | None = None

    @property
    def length(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        return self._tokens

    def read(self, step: Step) -> Output:
        if self._tree is not None and self._tree[0].parents is not None:
            raise UsageError(
                "a tree pass must be settled by keep() or rollback() before the next one"
            )
        tokens = tuple(step.tokens)
        if (
            self._table.max_length is not None
            and self.length + len(tokens) > self._table.max_length
        ):
            raise UsageError(
                f"{self._table.name} holds {self._table.max_length} tokens; "
                f"{self.length + len(tokens)} were given"
            )
        parents = range(-1, len(tokens) - 1) if step.parents is None else step.parents
        prefixes: list[tuple[int, ...]] = []
        for token, parent in zip(tokens, parents, strict=True):
            if not 0 <= token < self._table.vocab_size:
                raise UsageError(
                    f"token {token} is outside the vocabulary of {self._table.vocab_size}"
                )
            prefixes.append((self._tokens if parent < 0 else prefixes[parent]) + (token,))
        rows = range(len(tokens)) if step.rows is None else step.rows
        logits = np.array([self._table.logits(prefixes[row]) for row in rows]).reshape(
            len(rows), self._table.vocab_size
        )
        hidden = {
            layer: np.stack([self._table.hidden(prefix, layer) for prefix in prefixes])
            for layer in step.hidden
        }
        self._tree = (step, self.length)
        self._tokens += tokens
        return Output(logits, hidden)

    def fork(self, length: int | None = None) -> TableSession:
        copy = TableSession(self._table)
        copy.model, copy._tokens, copy._tree = self.model, self._tokens, self._tree
        if length is not None:
            copy.rollback(length)
        return copy

    def rollback(self, length: int) -> None:
        before = self._tree[1] if self._tree and self._tree[0].parents is not None else self.length
        if not 0 <= length <= self.length or (
            length > before and self._tree and self._tree[0].parents is not None
        ):
            raise UsageError(f"cannot roll back to {length} tokens: {before} can be kept")
        self._tokens, self._tree = self._tokens[:length], None

    def keep(self, path: Sequence[int]) -> None:
        if self._tree is None:
            raise UsageError("keep() follows a pass; there is none to choose from")
        step, start = self._tree
        self._tokens = self._tokens[:start] + tuple(step.tokens[index] for index in path)
        self._tree = None

    def close(self) -> None:
        self._tokens, self._tree = (), None


def _checked_table(laws: ArrayLike) -> NDArray[np.float64]:
    table = np.asarray(laws, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise UsageError(
            f"a table of laws is square, one row a last token; got shape {table.shape}"
        )
    if not np.all(table >= 0) or not np.allclose(table.sum(axis=1), 1.0, rtol=0, atol=1e-9):
        raise UsageError("every row of a table of laws is non-negative and sums to 1")
    return table
