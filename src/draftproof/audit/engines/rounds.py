"""What is recorded of an engine's round, and what an engine is whose rounds can be recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from draftproof.core.params import SamplingParams
from draftproof.core.records import ROOT, Draft, Origin
from draftproof.core.rules.protocol import Rule


@dataclass(frozen=True)
class RecordedRound:
    """One round of an engine under audit.

    prompt: its token ids. context: prompt and emitted tokens when the round began, the pending
    token last. draft: what was proposed, with the laws the engine claims its drafts come from
    (`Draft.laws`; none for drafts it calls constants). path: the accepted nodes of the draft, from
    the root down. tokens: what the round emitted. cut: the text ended before the round's last
    token, so that more may have been accepted than was emitted.

    The target's laws are no part of it: whoever audits computes them anew."""

    prompt: tuple[int, ...]
    context: tuple[int, ...]
    draft: Draft
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    cut: bool = False

    @property
    def num_accepted(self) -> int:
        """Accepted drafts."""
        return len(self.path)

    @property
    def last(self) -> int:
        """The last accepted node; ROOT when none was."""
        return self.path[-1] if self.path else ROOT

    @property
    def final_token(self) -> int | None:
        """The token after the accepted ones; None where the round emitted none."""
        return self.tokens[len(self.path)] if len(self.tokens) > len(self.path) else None

    @property
    def final_origin(self) -> Origin:
        """What the final token is, or would be."""
        if not self.draft.tokens:
            return "plain"
        return "replacement" if self.draft.children.get(self.last) else "bonus"

    @property
    def fault(self) -> str | None:
        """What contradicts itself in the record; None when nothing does."""
        accepted = tuple(self.draft.tokens[node] for node in self.path)
        if self.tokens[: len(accepted)] != accepted[: len(self.tokens)]:
            return (
                f"the accepted drafts are {list(accepted)}, but the round emitted "
                f"{list(self.tokens)}"
            )
        return None


class RoundEngine(Protocol):
    """An engine whose rounds can be recorded. name: with its version, for the report. rule: the
    rule it claims to verify by."""

    name: str
    rule: Rule

    def rounds(self, prompt: Sequence[int], params: SamplingParams) -> Iterator[RecordedRound]:
        """The rounds of one text, in order. UsageError for parameters that the engine would not
        honour."""
