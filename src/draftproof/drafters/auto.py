"""`auto`: several drafters side by side, one of them drafting in each round.

Which one is said before the round, by `choose`: the decoder's length controller compares what past rounds of this request and
the table of costs let it expect of each, together with what drafters can say of their coming draft before they make it
(`strength`, for instance the length of a match). No draw of the round plays a part, so the choice cannot bias what is emitted.
All drafters follow the text; only the chosen one works.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from draftproof.core.records import Observation, Selection
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Drafter, DraftSession, Proposal, Request, Wants
from draftproof.errors import UsageError


class Auto:
    """members: name -> drafter, the one to begin with first. All make chains: their drafts must suit one rule."""

    name = "auto"
    trees = False

    def __init__(self, members: Mapping[str, Drafter]) -> None:
        if len(members) < 2:
            raise UsageError(f"auto chooses between at least two drafters; it was given {', '.join(members) or 'none'}")
        branching = [name for name, member in members.items() if member.trees]
        if branching:
            raise UsageError(f"auto takes drafters of chains; {branching[0]} makes trees")
        self.members = dict(members)
        self.selections: frozenset[Selection] = frozenset().union(*(member.selections for member in members.values()))
        hidden = {layer for member in members.values() for layer in member.wants.hidden}
        self.wants = Wants(tuple(sorted(hidden)), max(member.wants.top_ids for member in members.values()))

    def open(self, request: Request) -> AutoSession:
        return AutoSession({name: member.open(request) for name, member in self.members.items()})


class AutoSession:
    """The members' states for one request."""

    def __init__(self, sessions: Mapping[str, DraftSession]) -> None:
        self._sessions = dict(sessions)
        self._chosen = next(iter(sessions))

    def strengths(self, context: Sequence[int]) -> dict[str, int]:
        """What every member that can says of a draft after `context`; 0: it has nothing to propose."""
        said: dict[str, int] = {}
        for name, session in self._sessions.items():
            if hasattr(session, "strengths"):
                said[name] = max(session.strengths(context).values())
        return said

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

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
