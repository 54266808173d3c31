"""What a grammar allows next, along every drafted path: a mask for each row, the target's and the
drafter's alike.

The law of a constrained request is the target's over the tokens the grammar allows, renormalised;
it is applied to the logits after penalties and bans, before other processors. States of the grammar
are kept by the generated tokens they stand for: a path asks for the state before it and moves a
copy on, so rejected drafts cost nothing later and no order of rows matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from draftproof.core.grammar import Grammar, Matcher
from draftproof.core.records import Array

if TYPE_CHECKING:
    from draftproof.core.grammar import Mask

Path = tuple[int, ...]


class Constraint:
    """The states of one request. num_prompt_tokens: the grammar begins after so many tokens of the
    context."""

    def __init__(self, grammar: Grammar, num_prompt_tokens: int) -> None:
        self._grammar, self._num_prompt_tokens = grammar, num_prompt_tokens
        self._committed: Path = ()
        self._states: dict[Path, Matcher | None] = {(): grammar.begin()}
        self._masks: dict[Path, Mask] = {}

    def __deepcopy__(self, memo: object) -> Constraint:
        """Itself: what it keeps is a function of the tokens asked about."""
        return self

    def apply(self, x: Array, context: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Write -inf into the logits x [n, vocab] where row i's grammar, after `context +
        paths[i]`, allows no token."""
        masks = np.stack([self.mask(context, path) for path in paths])
        if is_numpy_array(x):
            x[~masks] = -np.inf
            return
        xp = array_namespace(x)
        x[:] = xp.where(xp.asarray(masks, device=device(x)), x, -np.inf)

    def mask(self, context: Sequence[int], path: Sequence[int] = ()) -> Mask:
        """The tokens [vocab] allowed after `context + path`; none behind one that was not
        allowed."""
        text = self._text(context, path)
        if text not in self._masks:
            state = self._state(text)
            self._masks[text] = (
                np.zeros(self._grammar.vocab_size, bool) if state is None else state.mask()
            )
        return self._masks[text]

    def allows(self, token: int, context: Sequence[int], path: Sequence[int] = ()) -> bool:
        """Whether `token` may come after `context + path`."""
        return bool(self.mask(context, path)[token])

    def forced(self, context: Sequence[int], path: Sequence[int] = ()) -> Path:
        """Tokens the grammar expects after `context + path`; () where several texts are
        possible."""
        state = self._state(self._text(context, path))
        return () if state is None else state.forced()

    def _text(self, context: Sequence[int], path: Sequence[int]) -> Path:
        committed = tuple(context[self._num_prompt_tokens :])
        if committed != self._committed:
            self._move_to(committed)
        return (*committed, *path)

    def _move_to(self, committed: Path) -> None:
        """Forget the states that are not on the way of the committed text, nor after it."""
        state = self._state(committed)
        known = len(committed)
        self._states = {
            text: kept
            for text, kept in self._states.items()
            if text[:known] == committed or not text
        }
        self._masks = {
            text: kept for text, kept in self._masks.items() if text[:known] == committed
        }
        self._states[committed], self._committed = state, committed

    def _state(self, text: Path) -> Matcher | None:
        """The state after `text`, from the nearest known one before it; None behind a token that is
        not allowed."""
        known = next(end for end in range(len(text), -1, -1) if text[:end] in self._states)
        for end in range(known, len(text)):
            state = self._states[text[:end]]
            after = None if state is None else state.fork()
            self._states[text[: end + 1]] = (
                after if after is not None and after.consume(text[end]) else None
            )
        return self._states[text]
