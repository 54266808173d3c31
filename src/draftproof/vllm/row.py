"""One request inside vLLM, as a proposer sees it: its text so far, the drafter's session, and the
draft under verification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from draftproof.core.chance import KeyedChance, stream_key
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Observation, Origin, Round
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.controllers import length_controller
from draftproof.decode.length import Situation
from draftproof.decode.passes import drive
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Choosing, Drafter, Request
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel, Output, Session, Step


class Verifier(LanguageModel):
    """vLLM's target, as far as a drafter from tokens asks of one: it reads chains, and passes are
    vLLM's to make."""

    max_length: int

    def __init__(self, name: str, vocab_size: int, max_length: int) -> None:
        self.name, self.vocab_size, self.max_length = name, vocab_size, max_length

    def open(self) -> Session:
        raise UsageError(f"{self.name} runs in vLLM: a drafter there works from tokens alone")

    def extend_many(self, steps: Sequence[Step]) -> list[Output]:
        raise UsageError(f"{self.name} runs in vLLM: a drafter there works from tokens alone")


class Row:
    """drafter, config: what drafts, and how lengths adapt. prompt: the tokens before the first that
    was generated."""

    def __init__(
        self, drafter: Drafter, config: SpeculativeConfig, verifier: Verifier, prompt: Any
    ) -> None:
        self.place = -1
        self._verifier = verifier
        self._context: list[int] = prompt.tolist()
        self._known = np.array(prompt)
        self._draft: tuple[int, ...] = ()
        self._told = 0  # tokens the drafter knows that the target has read
        self._decides = False  # whether the controller has been asked about a round yet
        # vLLM does not show the request's own; what they forbid is rejected
        params = SamplingParams()
        laws = LawPipeline(params, num_prompt_tokens=len(prompt), vocab_size=verifier.vocab_size)
        self._stream = stream_key(0, prompt=self._context)
        self._session = drafter.open(Request(tuple(self._context), params, laws, verifier))
        self._controller = length_controller(config, drafter)

    @property
    def length(self) -> int:
        """Tokens known."""
        return len(self._context)

    def goes_on(self, text: Any) -> bool:
        """Whether `text` is this request's, one step later: the known text and at most the draft
        and one token more.

        A text that grew by more is another request, such as the next turn of a chat, even if it
        begins alike."""
        grown = len(text) - self.length
        return 0 < grown <= len(self._draft) + 1 and np.array_equal(
            text[: self.length], self._known
        )

    def read(self, text: Any) -> None:
        """Take what is new in `text`, the outcome of the last draft, and tell drafter and
        controller."""
        start, new = self.length, text[self.length :].tolist()
        accepted = 0
        while (
            accepted < min(len(new) - 1, len(self._draft))
            and new[accepted] == self._draft[accepted]
        ):
            accepted += 1
        last: Origin = (
            "plain"
            if not self._draft
            else "bonus"
            if accepted == len(self._draft)
            else "replacement"
        )
        origins: list[Origin] = ["draft"] * accepted
        record = Round(
            start=start,
            draft_tokens=self._draft,
            draft_parents=tuple(range(-1, len(self._draft) - 1)),
            tokens=tuple(new),
            origins=(*origins, *[last] * (len(new) - accepted)),
            num_accepted_tokens=accepted,
            reached=min(accepted + 1, len(self._draft)),
        )
        self._context += new
        self._known = np.array(text)
        if self._controller is not None and self._decides:
            self._controller.observe(record)
        self._session.observe(
            Observation(
                start=self._told, tokens=tuple(self._context[self._told : -1]), round=record
            )
        )
        self._told, self._draft = self.length - 1, ()

    def draft(self, longest: int) -> list[int]:
        """A draft of at most `longest` tokens that the target's context still holds."""
        remaining = self._verifier.max_length - self.length
        depth = max(min(longest, remaining - 1), 0)
        depth = depth if self._controller is None else self._decided(depth, remaining)
        chance = KeyedChance(self._stream, self.length)
        policy = None if self._controller is None else self._controller.go_on
        worth = None if self._controller is None else self._controller.room
        builder = DraftBuilder(
            chance, depth=depth, vocab_size=self._verifier.vocab_size, policy=policy, worth=worth
        )
        if depth > 0:
            proposal = self._session.propose(self._context, builder)
            if proposal is not None:
                drive(proposal)
        self._draft = builder.build().tokens
        return list(self._draft)

    def _decided(self, longest: int, remaining: int) -> int:
        """What the controller makes of the draft length, and which of several drafters it
        chooses."""
        assert self._controller is not None
        self._decides = True
        session = self._session
        foreseen = self._controller.foreseen(session, self._context)
        depth = self._controller.begin(
            Situation(length=self.length, longest=longest, remaining=remaining, foreseen=foreseen)
        )
        if self._controller.choice is not None and isinstance(session, Choosing):
            session.choose(self._controller.choice)
        return depth

    def close(self) -> None:
        """Free the drafter's state."""
        self._session.close()
