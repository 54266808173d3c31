"""Continuous batching: requests join and leave between rounds, prompts are read in pieces, beginnings in common once.

Nothing here knows of HTTP or threads. Whoever owns a `Scheduler` adds requests and calls `step` while there is any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from draftproof.core.params import SamplingParams
from draftproof.core.records import Origin, Round
from draftproof.decode.batch import Batch
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.decode.failures import belongs_to_one_row, explain
from draftproof.decode.logprobs import TokenLogprobs
from draftproof.decode.result import Completion
from draftproof.decode.samples import Cancel, Sample
from draftproof.decode.schedule import BatchSchedule
from draftproof.models.protocol import LanguageModel, Session
from draftproof.serve.prefix_cache import LEAST_SHARED, PrefixCache, shared

FAULT = "the server failed; its log says why"
STOPS = "the server stops"


@dataclass(frozen=True)
class Update:
    """What a round added to one text. index: which of the request's samples. completion: the whole, when this ended it."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    origins: tuple[Origin, ...]
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    completion: Completion | None = None
    failure: str | None = None


@dataclass
class Work:
    """A request's prompt, and where what comes of it goes. cancel: once set, its texts leave before the next round.

    queued, begun, first: when it came, when its first text was opened, when the first token was there."""

    decoder: SpeculativeDecoder
    ids: tuple[int, ...]
    params: SamplingParams
    deliver: Callable[[Update], None]
    cancel: Cancel
    queued: float = field(default_factory=perf_counter)
    begun: float | None = None
    first: float | None = None


@dataclass
class _Row:
    """One text under way. rounds, tokens: how many of them have been delivered; last: when."""

    work: Work
    index: int
    sample: Sample
    session: Session
    rounds: int = 0
    tokens: int = 0
    last: float | None = None


@dataclass(frozen=True)
class Seen:
    """What `on_row` is told when a row has new tokens or has ended. seconds: since those before, None for the first."""

    work: Work
    rounds: tuple[Round, ...]
    seconds: float | None
    completion: Completion | None


class Scheduler:
    """max_num_seqs: texts at a time. draft_length: by batch size. piece: most tokens of prompts read in one round. on_row: told
    of every row that did something."""

    def __init__(
        self,
        target: LanguageModel,
        prefixes: PrefixCache,
        *,
        max_num_seqs: int,
        piece: int,
        draft_length: BatchSchedule | None = None,
        on_row: Callable[[Seen], None] = lambda seen: None,
    ) -> None:
        self._target, self.prefixes, self._on_row = target, prefixes, on_row
        self._max_num_seqs, self._draft_length = max_num_seqs, draft_length
        self._batch = Batch(draft_length, piece=piece)
        self._waiting: deque[tuple[Work, int]] = deque()
        self._rows: dict[int, _Row] = {}

    @property
    def num_waiting(self) -> int:
        """Texts that have not begun."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._rows)

    @property
    def num_tokens(self) -> int:
        """Tokens that sessions hold, those of texts under way and those kept for later."""
        return self.prefixes.num_tokens + sum(row.session.length for row in list(self._rows.values()))

    def add(self, work: Work) -> None:
        """All texts of a request, behind those that came before."""
        self._waiting.extend((work, index) for index in range(work.params.n))

    def has_unfinished(self) -> bool:
        return bool(self._waiting or self._rows)

    def step(self) -> None:
        """One round of all that run, those that fit joining before it; what it brought is delivered. An error that is no row's
        own fails every row that ran, is raised, and leaves those that wait."""
        self._admit()
        try:
            left = self._batch.round()
        except Exception:
            self._fail_all(FAULT)
            raise
        ended = {id(sample) for sample in left}
        for key, row in list(self._rows.items()):
            if key in ended:  # before its client hears of it
                del self._rows[key]
                self.prefixes.put(row.session)
            self._deliver(row, key in ended)

    def close(self) -> None:
        """Free everything; requests that have not ended are told that the server stops."""
        for work, index in self._waiting:
            work.deliver(failed(index, STOPS))
        self._waiting.clear()
        self._fail_all(STOPS)
        self.prefixes.clear()

    def _admit(self) -> None:
        """Open waiting texts while there is room. One whose prompt another is just reading waits for it, and
        one that would share random numbers with another."""
        held: list[tuple[Work, int]] = []
        while self._waiting and len(self._rows) < self._max_num_seqs:
            work, index = self._waiting.popleft()
            if work.cancel.is_set():
                continue
            if self._is_being_read(work, index) or self._shares_coins(work, index):
                held.append((work, index))
            else:
                self._open(work, index)
        self._waiting.extendleft(reversed(held))

    def _is_being_read(self, work: Work, index: int) -> bool:
        """Whether a text under way is going to have read more of this prompt than it has by now, to be copied then."""
        if not self._may_copy(work, index):
            return False
        wanted = work.ids[:-1]
        for row in self._rows.values():
            common = shared(row.work.ids[:-1], wanted)
            if common >= LEAST_SHARED and row.session.length < common and row.session.can_fork:
                return True
        return False

    def _shares_coins(self, work: Work, index: int) -> bool:
        """Whether a text under way draws the very numbers this one would, where the company of a text decides how long its
        drafts are: through it one would learn what the other's numbers are."""
        if self._draft_length is None or work.decoder.rule.text_follows_seed:
            return False
        own = (work.ids, work.params.seed, index)
        return any((row.work.ids, row.work.params.seed, row.index) == own for row in self._rows.values())

    def _open(self, work: Work, index: int) -> None:
        session = self._session(work, index)
        try:
            sample = work.decoder.sample(session, work.ids, work.params, index, streams=True, cancel=work.cancel)
        except Exception as error:
            session.close()
            is_its_own = belongs_to_one_row(error)
            work.deliver(failed(index, explain(error) if is_its_own else FAULT))
            if is_its_own:
                return
            raise
        work.begun = work.begun or perf_counter()
        self._rows[id(sample)] = _Row(work, index, sample, session)
        self._batch.samples.append(sample)

    def _session(self, work: Work, index: int) -> Session:
        if not self._may_copy(work, index):
            return self._target.open()
        running = [row.session for row in self._rows.values()]
        return self.prefixes.copy(work.ids, running) or self._target.open()

    def _may_copy(self, work: Work, index: int) -> bool:
        """Not where hidden states of the prompt are wanted, or its log-probabilities, which the first text reports: those come
        of reading it."""
        scores = work.params.prompt_logprobs is not None and index == 0
        return not scores and not work.decoder.reads_states(work.params)

    def _deliver(self, row: _Row, ended: bool) -> None:
        sample, work = row.sample, row.work
        if sample.error is not None:
            work.deliver(failed(row.index, explain(sample.error)))
            return
        rounds, pieces = sample.rounds[row.rounds :], list(sample.new_pieces())
        if not pieces and not ended:
            return
        ids = tuple(token for piece in pieces for token in piece.token_ids)
        wants = work.params.logprobs is not None
        completion = sample.completion(work.decoder.statistics([sample], work.params), wants) if ended else None
        scored = sample.generation.prompt_logprobs if row.tokens == row.index == 0 else []
        update = Update(
            row.index,
            "".join(piece.text for piece in pieces),
            ids,
            tuple(piece.origin for piece in pieces for _ in piece.token_ids),
            tuple(sample.generation.logprobs[row.tokens :]) if wants else None,
            tuple(scored) or None,
            completion,
        )
        now = perf_counter()
        work.first = work.first or now
        self._on_row(Seen(work, tuple(rounds), None if row.last is None else now - row.last, completion))
        row.rounds, row.tokens, row.last = len(sample.rounds), row.tokens + len(ids), now
        work.deliver(update)

    def _fail_all(self, why: str) -> None:
        for row in self._rows.values():
            row.session.close()
            row.work.deliver(failed(row.index, why))
        self._rows.clear()
        self._batch.close()


def failed(index: int, why: str) -> Update:
    """The end of a text that nothing came of."""
    return Update(index, "", (), (), failure=why)
