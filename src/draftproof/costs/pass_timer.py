"""Times passes of a target and a draft model in turns, so that a slow stretch of the machine hits
all lengths alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from draftproof.models.protocol import LanguageModel, Session, Step
from draftproof.models.steps import wait_for

PASS_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 17, 24, 32, 33)
"""Tokens in a pass: every one a short draft leads to, then fewer; up to 32 drafts and the pending
token."""
TURNS = 3
Clock = Callable[[], float]
Times = tuple[float, ...]


@dataclass(frozen=True)
class PassTimes:
    """One visit. context: tokens read before the timed passes. target, draft: tokens in a pass of
    that model -> seconds of every turn. All passes hold `batch` sequences."""

    context: int
    target: Mapping[int, Times]
    draft: Mapping[int, Times] = field(default_factory=dict)
    batch: int = 1


def pass_lengths(longest: int) -> list[int]:
    """The lengths to time where the longest pass has `longest` tokens."""
    return sorted({n for n in PASS_LENGTHS if n <= longest} | {longest})


class PassTimer:
    """Sessions of both models after `context`, kept open between visits. A context manager.

    lengths: tokens in the target's passes, of which all rows are wanted, as in verification.
    draft_lengths: in those of the draft model. read: tokens of a pass that only reads, whose last
    row is wanted. Sequences of a batch hold the same context; clock: seconds."""

    def __init__(
        self,
        target: LanguageModel,
        context: Sequence[int],
        lengths: Sequence[int],
        draft: LanguageModel | None = None,
        *,
        draft_lengths: Sequence[int] = (1, 2),
        read: int | None = None,
        batch: int = 1,
        clock: Clock = perf_counter,
    ) -> None:
        self.context, self.batch, self._clock = tuple(context), batch, clock
        self.lengths, self.draft_lengths, self.read = tuple(lengths), tuple(draft_lengths), read
        models = [model for model in (target, draft) if model is not None]
        self._sessions = [[model.open() for _ in range(batch)] for model in models]
        for model, sessions in zip(models, self._sessions, strict=True):
            rows = (len(self.context) - 1,)
            # a draft model may have fewer ids
            tokens = tuple(token % model.vocab_size for token in self.context)
            model.extend_many([Step(session, tokens, rows=rows) for session in sessions])

    def visit(self, turns: int = TURNS, most: int = 0, seconds: float = 0.0) -> PassTimes:
        """Every length once a turn, single passes of the draft model in between, in `turns` turns
        after one that warms up; in as many as `most` while `seconds` are not over."""
        target: dict[int, list[float]] = {}
        draft: dict[int, list[float]] = {}
        asked = (*self.lengths, *(() if self.read is None else (self.read,)))
        began = self._clock() if most else 0.0
        for turn in range(max(turns, most) + 1):
            if turn > turns and self._clock() - began > seconds:
                break
            for place, n in enumerate(asked):
                if len(self._sessions) > 1:
                    width = self.draft_lengths[place % len(self.draft_lengths)]
                    taken = self._timed(self._sessions[1], width, last=True)
                    draft.setdefault(width, []).extend([taken] if turn else [])
                taken = self._timed(self._sessions[0], n, last=n not in self.lengths)
                target.setdefault(n, []).extend([taken] if turn else [])
        return PassTimes(len(self.context), _fixed(target), _fixed(draft), self.batch)

    def close(self) -> None:
        """Free the sessions."""
        for session in (s for sessions in self._sessions for s in sessions):
            session.close()

    def __enter__(self) -> PassTimer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _timed(self, sessions: Sequence[Session], n: int, last: bool) -> float:
        model = sessions[0].model
        tokens = tuple(self.context[i % len(self.context)] % model.vocab_size for i in range(n))
        rows = (n - 1,) if last else None
        for session in sessions:
            session.rollback(len(self.context))
        began = self._clock()
        model.extend_many([Step(session, tokens, rows=rows) for session in sessions])
        wait_for(model.device)
        return self._clock() - began


def _fixed(times: Mapping[int, list[float]]) -> dict[int, Times]:
    return {n: tuple(found) for n, found in times.items()}
