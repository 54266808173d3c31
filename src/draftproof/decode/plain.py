"""Plain decoding: the target alone, one token a pass. The oracle every fast path is compared with,
so it stays this simple."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from time import perf_counter
from typing import ClassVar

from draftproof.core.chance import Chance
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Observation, Round, Seconds
from draftproof.decode.logprobs import TokenLogprobs, row_logprobs
from draftproof.decode.reading import is_to_be_scored, read_scored
from draftproof.decode.stopping import Stopper
from draftproof.drafters.protocol import DraftSession, Wants
from draftproof.models.protocol import Output, Session, Step


@dataclass
class PlainGeneration:
    """One sequence decoded by the target alone; used like `Generation`, with no drafter that would
    want anything."""

    drafting: ClassVar[DraftSession | None] = None
    wants: ClassVar[Wants] = Wants()

    session: Session
    context: list[int]
    params: SamplingParams
    pipeline: LawPipeline
    stopper: Stopper
    chance_at: Callable[[int], Chance]
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    num_speculative_tokens: int = 0
    ahead: list[Observation] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.stopper.finish is not None

    def round(self) -> Generator[Step, Output, Round]:
        """Read what is unread, draw one token, commit it."""
        if is_to_be_scored(self):
            yield from read_scored(self)
        begin = perf_counter()
        start = len(self.context)
        unread = tuple(self.context[self.session.length :])
        output = yield Step(self.session, unread, rows=(len(unread) - 1,))
        verified = perf_counter()
        logits = output.logits[0]
        if self.pipeline.greedy:
            token = self.pipeline.greedy_tokens(output.logits, self.context, [()])[0]
        else:
            token = int(
                self.chance_at(start).draw_target(self.pipeline.law(logits, self.context), 0)
            )
        self.pipeline.check()
        if self.params.logprobs is not None:
            self.logprobs.append(row_logprobs(logits, token, self.params.logprobs))
        self.context.append(token)
        self.stopper.push(token)
        seconds = Seconds(verify=verified - begin, rest=perf_counter() - verified)
        return Round(
            start, (), (), (token,), ("plain",), 0, 0, reads_prompt=len(unread) > 1, seconds=seconds
        )

    def close(self) -> None:
        """Nothing of its own to free."""
