"""The linear head of linear_head.py as a drafter of one token in the decode loop."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from typing import Any

import torch

from draftproof.core.records import Observation, Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Drafter, DraftSession, Memory, Request, Wants
from draftproof.errors import InvalidLogitsError
from draftproof.heads.target import TargetView


class LinearHead(Drafter):
    """layer [width, width]: maps the target's last state to one from which its output layer guesses
    the token after next."""

    name = "linear_head"
    selections: frozenset[Selection] = frozenset({"iid"})
    memories: tuple[Memory, ...] = ()

    def __init__(self, layer: torch.Tensor, view: TargetView) -> None:
        self.layer, self.view = layer.to(view.dtype), view
        self.wants = Wants(hidden=(view.num_layers,))

    def most_read(self, depth: int) -> int:
        return min(depth, 1)

    def open(self, request: Request) -> LinearSession:
        return LinearSession(self, request)


class LinearSession(DraftSession):
    """One request: the target's state after the last token it has read."""

    def __init__(self, drafter: LinearHead, request: Request) -> None:
        self._drafter, self._laws = drafter, request.laws
        self._state: Any = None
        self._known = 0

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        if self._state is None or self._known != len(context) - 1:
            return
        with torch.inference_mode():
            guess = self._drafter.view.output(self._state @ self._drafter.layer.T)
        try:
            law = self._laws.law(guess, context, ())
        except InvalidLogitsError as error:
            draft.invalid_law(error)
            return
        if draft.go_on(law):
            draft.draw(law)

    def observe(self, seen: Observation) -> None:
        layer = self._drafter.view.num_layers
        if layer in seen.hidden:
            state = torch.as_tensor(seen.hidden[layer][-1])
            self._state = state.to(self._drafter.layer.dtype)
            self._known = seen.start + len(seen.tokens)

    def state_key(self) -> Hashable:
        return self._known

    def fork(self) -> LinearSession:
        return copy(self)  # the state is replaced, never written to
