"""`prediction`: much of the answer is expected to repeat a text that the caller gives, such as a
file that is to be edited.

The request's `prediction` (OpenAI's Predicted Outputs) is drafted from the place where the answer
stands in it, which is found again after every insertion, deletion, replacement and moved block
(`stores/expected.py`). A request without one drafts nothing.

Drafts are fixed guesses, and the place follows from committed tokens alone: any prediction is
exact, a wrong one only slow. Text that the target changed at the join of two tokens counts as
replaced: the answer is compared by token, not by letter."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from itertools import islice

from draftproof.core.records import ROOT, Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import (
    Drafter,
    DraftSession,
    Foreseeing,
    Foreseen,
    Memory,
    Request,
    Wants,
)
from draftproof.drafters.registry import Config, Method, Parts
from draftproof.drafters.stores.expected import ExpectedText
from draftproof.drafters.stores.grow import place

SUREST = 8
"""Tokens in a row that came as expected, from which on more of them make a draft no surer."""


class Prediction(Drafter):
    name = "prediction"
    selections: frozenset[Selection] = frozenset({"fixed"})
    memories: tuple[Memory, ...] = ()
    wants = Wants(prediction=True)

    def open(self, request: Request) -> PredictionSession:
        return PredictionSession(request)


class PredictionSession(DraftSession, Foreseeing):
    """One answer beside the text it was expected to be."""

    def __init__(self, request: Request) -> None:
        assert not isinstance(request.params.prediction, str), (
            "parameters are resolved before a session opens"
        )
        self._prediction, self._laws = request.params.prediction or (), request.laws
        self._num_prompt_tokens = len(request.prompt)
        self._expected = ExpectedText(self._prediction)

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> None:
        self._read(context)
        tokens = islice(self._expected.going_on(), draft.room)
        place(
            [(token, node - 1 if node else ROOT, 1.0) for node, token in enumerate(tokens)],
            draft,
            context,
            self._laws,
        )

    def foresee(self, context: Sequence[int]) -> Foreseen:
        """How long the answer has come as expected; 1 where it is guessed to do so again."""
        self._read(context)
        most = sum(1 for _ in islice(self._expected.going_on(), SUREST * 8))
        return Foreseen(1 + min(self._expected.agreed, SUREST), most) if most else Foreseen(0)

    def state_key(self) -> Hashable:
        return ()

    def fork(self) -> PredictionSession:
        other = copy(self)
        other._expected = self._expected.fork()
        return other

    def close(self) -> None:
        self._expected = ExpectedText(())

    def _read(self, context: Sequence[int]) -> None:
        """Follow what is new of the answer; all of it when it does not go on from what was read."""
        answer = context[self._num_prompt_tokens :]
        if list(answer[: len(self._expected.text)]) != self._expected.text:
            self._expected = ExpectedText(self._prediction)
        for token in answer[len(self._expected.text) :]:
            self._expected.read(token)


def _make(config: Config, parts: Parts) -> Prediction:
    return Prediction()


METHODS = (
    Method(
        "prediction",
        "what the caller expects the answer to repeat, found again after every edit",
        16,
        _make,
        foretold=False,
    ),
)
