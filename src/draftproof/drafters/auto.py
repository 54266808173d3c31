"""`auto`: several drafters side by side, one of them drafting in each round.

Which one is said before the round, by `choose`: the decoder's length controller compares what past rounds of this request and
the table of costs let it expect of each, together with what drafters can say of their coming draft before they make it
(`foresee`, for instance the length of a match). No draw of the round plays a part, so the choice cannot bias what is emitted.
All drafters follow the text; only the chosen one works.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy

from draftproof.core.records import Observation, Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import (
    Choosing,
    Drafter,
    DraftSession,
    Foreseeing,
    Foreseen,
    Proposal,
    Renewable,
    Request,
    Wants,
)
from draftproof.errors import UsageError


class Auto(Drafter):
    """members: name -> drafter, the one to begin with first. limits: the longest draft of those that have a limit of their
    own. One rule verifies them all: it must know every kind of draft among them, and trees if one of them branches."""

    name = "auto"

    def __init__(self, members: Mapping[str, Drafter], limits: Mapping[str, int] | None = None) -> None:
        if len(members) < 2:
            raise UsageError(f"auto chooses between at least two drafters; it was given {', '.join(members) or 'none'}")
        self._members, self.limits = dict(members), dict(limits or {})
        self.trees = any(member.trees for member in members.values())
        self.selections: frozenset[Selection] = frozenset().union(*(member.selections for member in members.values()))
        hidden = {layer for member in members.values() for layer in member.wants.hidden}
        self.memories = tuple(memory for member in members.values() for memory in member.memories)
        wants = [member.wants for member in members.values()]
        self.wants = Wants(tuple(sorted(hidden)), max(one.top_ids for one in wants), any(one.prediction for one in wants))

    @property
    def members(self) -> Mapping[str, Drafter]:
        return self._members

    @property
    def known_texts(self) -> int:
        return sum(member.known_texts for member in self._members.values()) % 2**64

    def open(self, request: Request) -> AutoSession:
        return AutoSession(self.members, request)


class AutoSession(DraftSession, Choosing, Renewable):
    """The members' states for one request."""

    def __init__(self, members: Mapping[str, Drafter], request: Request) -> None:
        self._members = members
        self._sessions: dict[str, DraftSession] = {name: member.open(request) for name, member in members.items()}
        self._chosen = next(iter(members))

    def foresee_each(self, context: Sequence[int]) -> dict[str, Foreseen]:
        """What every member that can says of a draft after `context`, by name."""
        able = {name: session for name, session in self._sessions.items() if isinstance(session, Foreseeing)}
        return {name: session.foresee(context) for name, session in able.items()}

    def choose(self, name: str) -> None:
        """Let `name` draft from now on."""
        self._chosen = name

    def propose(self, context: Sequence[int], draft: DraftBuilder) -> Proposal:
        return self._sessions[self._chosen].propose(context, draft)

    def observe(self, seen: Observation) -> None:
        for session in self._sessions.values():
            session.observe(seen)

    def state_key(self) -> Hashable:
        return (self._chosen, tuple(session.state_key() for session in self._sessions.values()))

    def fork(self) -> AutoSession:
        other = copy(self)
        other._sessions = {name: session.fork() for name, session in self._sessions.items()}
        return other

    def renew(self, request: Request, kept: int) -> None:
        """Members that cannot be renewed are opened anew."""
        self._chosen = next(iter(self._members))
        for name, session in self._sessions.items():
            if isinstance(session, Renewable):
                session.renew(request, kept)
            else:
                session.close()
                self._sessions[name] = self._members[name].open(request)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
