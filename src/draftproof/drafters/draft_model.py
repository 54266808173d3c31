"""`draft_model`: a smaller language model proposes a chain (2211.17192).

With `draft_sample_method="probabilistic"` each draft is sampled from the draft's own law, processed by the very parameters
that make the target's; with `"greedy"` its most likely token is a fixed guess. The draft's session trails the context: it is
rolled back to what the target accepted and reads the rest with its next step, the last drafted token included.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from typing import Literal

from draftproof.core.records import Array, Observation, Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Request, Wants
from draftproof.errors import InvalidLogitsError, UsageError
from draftproof.models.protocol import LanguageModel, Output, Step
from draftproof.models.vocabulary import align_logits

DraftSampleMethod = Literal["probabilistic", "greedy"]


class DraftModel:
    """model: the draft model, over the target's tokens (its padded output layer may differ in size)."""

    name = "draft_model"
    trees = False
    wants = Wants()

    def __init__(self, model: LanguageModel, draft_sample_method: DraftSampleMethod = "probabilistic") -> None:
        if draft_sample_method not in ("probabilistic", "greedy"):
            raise UsageError(f"draft_sample_method {draft_sample_method!r} is unknown; allowed: probabilistic, greedy")
        self.model, self.draft_sample_method = model, draft_sample_method
        kinds: dict[str, frozenset[Selection]] = {"greedy": frozenset({"fixed"}), "probabilistic": frozenset({"iid", "fixed"})}
        self.selections = kinds[draft_sample_method]

    def open(self, request: Request) -> DraftModelSession:
        return DraftModelSession(self, request)


class DraftModelSession:
    """The draft model's reading of one request."""

    def __init__(self, drafter: DraftModel, request: Request) -> None:
        self._greedy = drafter.draft_sample_method == "greedy"
        self._laws, self._vocab_size = request.laws, request.target.vocab_size
        self._model, self._session = drafter.model, drafter.model.open()
        self._num_input_ids: int = getattr(drafter.model, "num_input_ids", drafter.model.vocab_size)

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> Generator[Step, Output, None]:
        if not self._fits(context):
            draft.note(f"prompt and text outgrew the draft model's {self._model.max_length} tokens: decoding plainly")
            return
        unread: Sequence[int] = context[self._session.length :]
        if max(unread) >= self._num_input_ids:
            draft.note(f"token {max(unread)} is none of the draft model's {self._num_input_ids} input ids: decoding plainly")
            return
        while draft.room > 0 and self._fits((*context, *draft.path())):
            output = yield Step(self._session, tuple(unread), rows=(len(unread) - 1,))
            logits = align_logits(output.logits[0], self._vocab_size)
            try:
                token = self._next(logits, context, draft)
            except InvalidLogitsError as error:
                draft.invalid_law(error)
                return
            if token is None or token >= self._num_input_ids:
                return
            unread = (token,)

    def _next(self, logits: Array, context: Sequence[int], draft: DraftBuilder) -> int | None:
        """Add one token; None when the length policy says stop. At temperature 0 the draw is the arg max: no law is needed."""
        path = draft.path()
        law = None if self._laws.greedy else self._laws.law(logits, context, path)
        self._laws.check()
        if not draft.go_on(law):
            return None
        if law is not None and not self._greedy:
            return draft.draw(law)
        token = self._laws.greedy_tokens(logits[None, :], context, [path])[0]
        draft.guess(token)
        return token

    def _fits(self, tokens: Sequence[int]) -> bool:
        return self._model.max_length is None or len(tokens) <= self._model.max_length

    def observe(self, seen: Observation) -> None:
        self._session.rollback(min(self._session.length, seen.start + len(seen.tokens)))

    def state_key(self) -> Hashable:
        return tuple(self._session.tokens)

    def close(self) -> None:
        self._session.close()
