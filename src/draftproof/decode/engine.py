"""The engine: requests join and leave between rounds, and every text of every request goes through
it.

Nothing here knows of tokenizing prompts, threads or HTTP. Whoever owns an `Engine` adds checked
requests and calls `step` while there is any. Who shares rounds with whom changes no text: texts
share passes and what was read of their prompts, no more."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from draftproof.core.records import Round
from draftproof.decode.batch import Batch
from draftproof.decode.failures import belongs_to_one_row, explain
from draftproof.decode.kept_sessions import KeptSessions
from draftproof.decode.logprobs import TokenLogprobs
from draftproof.decode.prefixes import EqualPrompts, Prefixes
from draftproof.decode.request import GenerationRequest
from draftproof.decode.result import Completion, Piece, Result, Update
from draftproof.decode.samples import Cancel, Sample
from draftproof.decode.sequences import make_stopper, open_generation
from draftproof.decode.speculation import Speculation
from draftproof.decode.statistics import Statistics, statistics
from draftproof.decode.stopping import FinishReason, Stopper
from draftproof.models.protocol import LanguageModel, Session

OnUpdate = Callable[[Update], None]
OnRound = Callable[[Round], None]


@dataclass(frozen=True)
class RequestOutput:
    """A request all of whose texts have ended. error: what ended the first text that failed, for
    who would rather raise it."""

    request_id: int
    result: Result
    error: Exception | None = None


@dataclass(eq=False)
class _Job:
    """A request under way. ended: its finished texts, with the notes of their rounds."""

    number: int
    request: GenerationRequest
    speculation: Speculation | None
    on_update: OnUpdate | None
    on_round: OnRound | None
    cancel: Cancel | None
    stopper: Stopper | None
    kept: KeptSessions | None
    ended: dict[int, tuple[Completion, Sequence[str]]] = field(default_factory=dict)
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    error: Exception | None = None

    def may_share(self, index: int) -> bool:
        """Whether text `index` may go on from a prompt that another one has read. Not where hidden
        states of the prompt are wanted, or its log-probabilities, which the first text reports:
        those come of reading it."""
        params = self.request.params
        scores = params.prompt_logprobs is not None and index == 0
        states = self.speculation is not None and self.speculation.reads_states(params)
        return self.kept is None and not scores and not states


@dataclass(eq=False)
class _Text:
    """One text under way."""

    job: _Job
    index: int
    sample: Sample
    session: Session

    @property
    def prompt(self) -> tuple[int, ...]:
        return self.job.request.prompt_token_ids


class Engine:
    """target, speculation: what decodes; None for the target alone. max_num_seqs: texts at a time.
    tokenizer: None leaves texts empty. coupled: plain texts are drawn by the noise of the rule
    `gumbel`. prompt_piece: most tokens of prompts that one round reads for texts that have not
    begun; None reads every prompt at once. prefixes: who goes on from what others have read.

    Not for two threads at a time."""

    def __init__(
        self,
        target: LanguageModel,
        speculation: Speculation | None = None,
        *,
        max_num_seqs: int,
        tokenizer: Any = None,
        coupled: bool = False,
        prompt_piece: int | None = None,
        prefixes: Prefixes | None = None,
    ) -> None:
        self._target, self._speculation, self._tokenizer = target, speculation, tokenizer
        self._coupled = coupled
        self._max_num_seqs, self._prefixes = max_num_seqs, prefixes or EqualPrompts()
        self._schedule = None if speculation is None else speculation.config.schedule
        self._batch = Batch(self._schedule, piece=prompt_piece)
        self._numbers = count()
        self._jobs: dict[int, _Job] = {}
        self._waiting: deque[tuple[_Job, int]] = deque()
        self._due: Counter[tuple[int, ...]] = Counter()
        self._running: list[_Text] = []
        self._finished: list[RequestOutput] = []

    @property
    def num_waiting(self) -> int:
        """Texts that have not begun."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_tokens(self) -> int:
        """Tokens that the sessions of texts under way hold."""
        return sum(text.session.length for text in list(self._running))

    def add_request(
        self,
        request: GenerationRequest,
        *,
        speculation: Speculation | None = None,
        on_update: OnUpdate | None = None,
        on_round: OnRound | None = None,
        cancel: Cancel | None = None,
        stopper: Stopper | None = None,
        kept: KeptSessions | None = None,
    ) -> int:
        """All texts of a request, behind those that came before; its number.

        speculation: in place of the engine's own. on_update: told what each round added to a text,
        its end included; on_round: of every Round, within it. cancel: once set, its texts end
        before the next round with finish_reason "abort". stopper: in place of the parameters' own,
        for one text. kept: the caller's sessions to read and draft with, for one text."""
        chosen = self._speculation if speculation is None else speculation
        job = _Job(next(self._numbers), request, chosen, on_update, on_round, cancel, stopper, kept)
        self._jobs[job.number] = job
        for index in range(request.params.n):
            self._waiting.append((job, index))
            self._due[request.prompt_token_ids] += job.may_share(index)
        return job.number

    def is_unfinished(self, request_id: int) -> bool:
        """Whether texts of this request run or wait."""
        return request_id in self._jobs

    def has_unfinished_requests(self) -> bool:
        return bool(self._jobs or self._finished)

    def step(self) -> list[RequestOutput]:
        """One round of all that run, those that fit joining before it; the requests it brought to
        their end.

        An error that is one text's own (memory, invalid logits) ends that text. Any other is
        raised, and ends every request with a text that ran; those that wait stay."""
        self._admit()
        try:
            left = {id(sample) for sample in self._batch.round()}
        except BaseException:
            for text in list(self._running):
                self.abort_request(text.job.number)
            raise
        for text in list(self._running):
            self._report(text, id(text.sample) in left)
        finished, self._finished = self._finished, []
        return finished

    def abort_request(self, request_id: int) -> None:
        """End a request between two steps, and say nothing more of it. Nothing happens when it has
        ended."""
        job = self._jobs.pop(request_id, None)
        if job is None:
            return
        for waiting in [each for each in self._waiting if each[0] is job]:
            self._begin(*waiting)
        self._prefixes.trim(self._due)
        for text in [text for text in self._running if text.job is job]:
            if any(text.sample is sample for sample in self._batch.samples):
                self._batch.remove(text.sample)
            self._leave(text)

    def stream(
        self,
        request: GenerationRequest,
        *,
        on_round: OnRound | None = None,
        cancel: Cancel | None = None,
        kept: KeptSessions | None = None,
    ) -> Generator[Piece, None, Result]:
        """This request alone, piece by piece; the generator's value is its Result. Raises what ends
        a text."""
        pieces: list[Piece] = []
        number = self.add_request(
            request,
            on_update=lambda update: pieces.extend(update.pieces),
            on_round=on_round,
            cancel=cancel,
            kept=kept,
        )
        try:
            while True:
                outputs = self._step_of(number)
                yield from pieces
                pieces.clear()
                if outputs:
                    return outputs[0].result
        finally:
            self.close()

    def run(
        self, requests: Sequence[GenerationRequest], cancel: Cancel | None = None
    ) -> Iterator[tuple[int, Result]]:
        """These requests alone: the index and the Result of each, as it ends. Closing the iterator
        frees everything."""
        try:
            numbers = {
                self.add_request(request, cancel=cancel): index
                for index, request in enumerate(requests)
            }
            while self.has_unfinished_requests():
                for output in self.step():
                    yield numbers[output.request_id], output.result
        finally:
            self.close()

    def generate(self, request: GenerationRequest, cancel: Cancel | None = None) -> Result:
        """This request alone. Raises what ends a text."""
        try:
            number = self.add_request(request, cancel=cancel)
            while not (outputs := self._step_of(number)):
                pass
            return outputs[0].result
        finally:
            self.close()

    def close(self) -> None:
        """End everything and free it. Idempotent."""
        for number in list(self._jobs):
            self.abort_request(number)
        self._prefixes.clear()

    def _step_of(self, number: int) -> list[RequestOutput]:
        """A step for who wants one request only: what ends one of its texts is raised."""
        outputs, job = self.step(), self._jobs.get(number)
        error = outputs[0].error if outputs else job.error if job else None
        if error is not None:
            raise error
        return outputs

    def _admit(self) -> None:
        """Open waiting texts while there is room. One whose prompt another is just reading waits
        for it, and one that would share random numbers with another."""
        for job, index in [
            each for each in self._waiting if each[0].cancel is not None and each[0].cancel.is_set()
        ]:
            self._begin(job, index)
            self._prefixes.trim(self._due)
            self._end_unopened(job, index, "abort")
        for job, index in list(self._waiting):
            if len(self._running) >= self._max_num_seqs:
                break
            if not self._is_being_read(job, index) and not self._shares_coins(job, index):
                self._begin(job, index)
                self._open(job, index)

    def _begin(self, job: _Job, index: int) -> None:
        """Text `index` waits no longer."""
        self._waiting.remove((job, index))
        if job.may_share(index):
            # and no entry of nought is left
            self._due -= Counter({job.request.prompt_token_ids: 1})

    def _is_being_read(self, job: _Job, index: int) -> bool:
        """Whether a text under way is going to have read more of this prompt than it has by now, to
        be copied then."""
        if not job.may_share(index):
            return False
        wanted = job.request.prompt_token_ids
        return any(
            text.session.can_fork
            and text.session.length < self._prefixes.saved(text.prompt, wanted)
            for text in self._running
        )

    def _shares_coins(self, job: _Job, index: int) -> bool:
        """Whether a text under way draws the very numbers this one would, where the company of a
        text decides how long its drafts are: through it one would learn what the other's numbers
        are."""
        if (
            self._schedule is None
            or job.speculation is None
            or job.speculation.rule.text_follows_seed
        ):
            return False
        return any(_coins(text.job, text.index) == _coins(job, index) for text in self._running)

    def _open(self, job: _Job, index: int) -> None:
        session = None
        try:
            session = self._session(job, index)
            sample = self._sample(job, index, session)
        except BaseException as error:
            if session is not None and job.kept is None:
                session.close()
            if not isinstance(error, Exception) or not belongs_to_one_row(error):
                self.abort_request(job.number)
                raise
            self._end_unopened(job, index, "error", error)
            return
        self._running.append(_Text(job, index, sample, session))
        self._batch.samples.append(sample)

    def _session(self, job: _Job, index: int) -> Session:
        if job.kept is not None:
            return job.kept.target_for(self._target, job.request, job.speculation)
        if not job.may_share(index):
            return self._target.open()
        running = [(text.prompt, text.session) for text in self._running]
        return (
            self._prefixes.find(job.request.prompt_token_ids, running, self._due)
            or self._target.open()
        )

    def _sample(self, job: _Job, index: int, session: Session) -> Sample:
        request, params, streams = job.request, job.request.params, job.on_update is not None
        stopper = job.stopper or make_stopper(
            self._target, self._tokenizer, len(request.prompt_token_ids), params, streams=streams
        )
        generation = open_generation(
            *(self._target, session, request, index, stopper, job.speculation),
            coupled=self._coupled,
            open_drafter=None if job.kept is None else job.kept.open_drafter,
        )
        return Sample(
            generation,
            index=index,
            tokenizer=self._tokenizer,
            detokenizer=stopper.detokenizer if streams else None,
            skip_special_tokens=params.skip_special_tokens,
            stop_strings=() if params.include_stop_str_in_output else tuple(params.stop or ()),
            on_round=job.on_round,
            cancel=job.cancel,
        )

    def _report(self, text: _Text, has_ended: bool) -> None:
        """Tell of what the round brought; of an end once what the text held is free."""
        job, sample = text.job, text.sample
        if has_ended:
            self._leave(text)
            completion = sample.completion(self._statistics(job, sample.rounds, list(sample.notes)))
        if job.on_update is not None and (has_ended or sample.has_news):
            job.on_update(replace(sample.news(), completion=completion if has_ended else None))
        if has_ended:
            if text.index == 0:
                job.prompt_logprobs = tuple(sample.generation.prompt_logprobs) or None
            self._end(job, completion, list(sample.notes), sample.error)

    def _end_unopened(
        self, job: _Job, index: int, reason: FinishReason, error: Exception | None = None
    ) -> None:
        """The end of a text that nothing came of."""
        said = None if error is None else explain(error)
        none = None if job.request.params.logprobs is None else ()
        stats = self._statistics(job, (), ())
        completion = Completion(
            index, "", (), (), reason, None, none, stats, (), 0.0, 0.0, error=said
        )
        if job.on_update is not None:
            pieces = (Piece("", (), "plain", reason, None, index),) if reason == "abort" else ()
            job.on_update(Update(index, pieces=pieces, completion=completion, failure=said))
        self._end(job, completion, (), error)

    def _end(
        self, job: _Job, completion: Completion, notes: Sequence[str], error: Exception | None
    ) -> None:
        """Note one text's end, and the request's when it was the last."""
        job.ended[completion.index], job.error = (completion, notes), job.error or error
        if len(job.ended) < job.request.params.n:
            return
        self._jobs.pop(job.number, None)
        ended = [each for _, each in sorted(job.ended.items())]
        rounds = [record for each, _ in ended for record in each.rounds]
        totals = self._statistics(job, rounds, [note for _, notes in ended for note in notes])
        outputs = tuple(each for each, _ in ended)
        result = Result(
            job.request.prompt_token_ids, outputs, job.request.seed, totals, job.prompt_logprobs
        )
        self._finished.append(RequestOutput(job.number, result, job.error))

    def _leave(self, text: _Text) -> None:
        self._running.remove(text)
        if text.job.kept is None:
            self._prefixes.put(text.prompt, text.session)
            self._prefixes.trim(self._due)

    def _statistics(self, job: _Job, rounds: Sequence[Round], notes: Sequence[str]) -> Statistics:
        totals = statistics(rounds, rows=self._target.rows, notes=notes)
        return (
            totals
            if job.speculation is None
            else job.speculation.described(totals, job.request.params)
        )


def _coins(job: _Job, index: int) -> tuple[object, ...]:
    """What decides the random numbers of text `index`."""
    return job.request.prompt_token_ids, job.request.seed, job.request.first_index + index
