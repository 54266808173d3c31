"""What the server asks of the engine: requests with the times of their lives, and word of every
round to whoever asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

from draftproof.core.records import Round
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.decode.engine import Engine
from draftproof.decode.request import GenerationRequest
from draftproof.decode.result import Completion, Update
from draftproof.decode.samples import Cancel
from draftproof.serve.prefix_cache import PrefixCache

FAULT = "the server failed; its log says why"
STOPS = "the server stops"


@dataclass(eq=False)
class Work:
    """A request, and where what comes of it goes. cancel: once set, its texts leave before the next
    round.

    queued, begun, first: when it came, when its first text was opened, when the first token was
    there."""

    decoder: SpeculativeDecoder
    request: GenerationRequest
    deliver: Callable[[Update], None]
    cancel: Cancel
    queued: float = field(default_factory=perf_counter)
    begun: float | None = None
    first: float | None = None
    last: dict[int, float] = field(default_factory=dict)
    """When each text had its latest tokens."""
    ended: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Seen:
    """What `on_row` is told when a row has new tokens or has ended. seconds: since those before,
    None for the first."""

    work: Work
    rounds: tuple[Round, ...]
    seconds: float | None
    completion: Completion | None


class Scheduler:
    """decoder: whose target all requests are for. max_num_seqs: texts at a time. piece: most tokens
    of prompts read in one round. on_row: told of every row that did something."""

    def __init__(
        self,
        decoder: SpeculativeDecoder,
        prefixes: PrefixCache,
        *,
        max_num_seqs: int,
        piece: int,
        on_row: Callable[[Seen], None] = lambda seen: None,
    ) -> None:
        self.prefixes, self._on_row = prefixes, on_row
        self._engine = Engine(
            decoder.target,
            decoder.speculation,
            max_num_seqs=max_num_seqs,
            tokenizer=decoder.tokenizer,
            prompt_piece=piece,
            prefixes=prefixes,
        )
        self._works: dict[int, Work] = {}

    @property
    def num_waiting(self) -> int:
        """Texts that have not begun."""
        return self._engine.num_waiting

    @property
    def num_running(self) -> int:
        return self._engine.num_running

    @property
    def num_tokens(self) -> int:
        """Tokens that sessions hold, those of texts under way and those kept for later."""
        return self.prefixes.num_tokens + self._engine.num_tokens

    def add(self, work: Work) -> None:
        """All texts of a request, behind those that came before."""
        number = self._engine.add_request(
            work.request,
            speculation=work.decoder.speculation,
            on_update=partial(self._deliver, work),
            cancel=work.cancel,
        )
        self._works[number] = work

    def has_unfinished(self) -> bool:
        return self._engine.has_unfinished_requests()

    def step(self) -> None:
        """One round of all that run; what it brought is delivered. An error that is no row's own
        fails every request that ran, is raised, and leaves those that wait."""
        for number, work in list(self._works.items()):
            if work.cancel.is_set() and work.first is None:  # nobody is left to hear of it
                self._engine.abort_request(number)
                del self._works[number]
        try:
            self._engine.step()
        finally:
            for number, work in list(self._works.items()):
                if not self._engine.is_unfinished(number):
                    del self._works[number]
                    self._fail(work, FAULT)

    def close(self) -> None:
        """Free everything; requests that have not ended are told that the server stops."""
        self._engine.close()
        for work in self._works.values():
            self._fail(work, STOPS)
        self._works.clear()

    def _deliver(self, work: Work, update: Update) -> None:
        now, index = perf_counter(), update.index
        if update.failure is None:
            work.begun = work.begun or now - update.seconds
            work.first = work.first or now
            before, work.last[index] = work.last.get(index), now
            self._on_row(
                Seen(
                    work, update.rounds, None if before is None else now - before, update.completion
                )
            )
        if update.completion is not None:
            work.ended.add(index)
        work.deliver(update)

    def _fail(self, work: Work, why: str) -> None:
        """Tell of texts that nothing more comes of."""
        for index in range(work.request.params.n):
            if index not in work.ended:
                work.deliver(failed(index, why))


def failed(index: int, why: str) -> Update:
    """The end of a text that nothing came of."""
    return Update(index, failure=why)
