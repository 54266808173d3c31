"""What a conversation keeps from turn to turn: the sessions of target and drafter, brought to where
the next turn begins."""

from __future__ import annotations

from typing import Any

from draftproof.core.history import common_prefix
from draftproof.decode.request import GenerationRequest
from draftproof.decode.speculation import Speculation
from draftproof.drafters.protocol import Drafter, DraftSession, Renewable, Request
from draftproof.models.protocol import LanguageModel, Session


class KeptSessions:
    """target: the session whose tokens have been read, None before the first turn."""

    def __init__(self) -> None:
        self.target: Session | None = None
        self._drafting: DraftSession | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens read and kept."""
        return 0 if self.target is None else self.target.length

    def target_for(
        self, target: LanguageModel, request: GenerationRequest, speculation: Speculation | None
    ) -> Session:
        """The target's session, having read the longest prefix of the prompt that it can keep."""
        if self.target is None:
            self.target = target.open()
        params = request.params
        drafter = None if speculation is None else speculation.drafter_for(params)
        if self._drafting is not None and (
            drafter is None or not isinstance(self._drafting, Renewable)
        ):
            self._drafting.close()
            self._drafting = None
        starts_blind = (
            self._drafting is None and speculation is not None and speculation.reads_states(params)
        )
        reads_all = starts_blind or params.prompt_logprobs is not None
        self.target.rollback(
            0 if reads_all else common_prefix(self.target.tokens, request.prompt_token_ids[:-1])
        )
        return self.target

    def open_drafter(self, drafter: Drafter, request: Request) -> DraftSession:
        """The drafter's session for this turn: the last turn's, told where it stands, or a new
        one."""
        kept: Any = self._drafting  # anything but a Renewable has been closed before
        if kept is None:
            kept = self._drafting = drafter.open(request)
        else:
            kept.renew(request, self.num_tokens)
        return kept

    def close(self) -> None:
        """Free everything. Idempotent; a later turn starts cold."""
        for session in (self.target, self._drafting):
            if session is not None:
                session.close()
        self.target = self._drafting = None
