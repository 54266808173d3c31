"""One sample under way: its rounds, the text they release, and what the caller receives."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import groupby
from time import perf_counter
from typing import Any, Protocol

from draftproof.core.params import SamplingParams
from draftproof.core.records import Round
from draftproof.decode.failures import explain
from draftproof.decode.logprobs import TokenLogprobs
from draftproof.decode.reading import Reading, is_to_be_scored, read_ahead
from draftproof.decode.result import Completion, Piece, Update
from draftproof.decode.statistics import Statistics
from draftproof.decode.stopping import Finish, Stopper
from draftproof.decode.text import Detokenizer, decode_all
from draftproof.models.protocol import Output, Step


class Cancel(Protocol):
    """Tells that the caller has had enough; a `threading.Event` is one. Asked before every
    round."""

    def is_set(self) -> bool: ...


class Sequenced(Reading, Protocol):
    """What `Generation` and `PlainGeneration` have in common."""

    params: SamplingParams
    stopper: Stopper
    logprobs: list[TokenLogprobs]
    prompt_logprobs: list[TokenLogprobs | None]
    num_speculative_tokens: int

    @property
    def finished(self) -> bool: ...

    def round(self) -> Any: ...

    def close(self) -> None: ...


class Sample:
    """One sample of one prompt, run round by round; `news` is what a round brought, `completion`
    the whole.

    detokenizer: None where nobody wants the text before its end. cancel: ends the text before the
    next round once it is set. num_speculative_tokens: the draft length asked for, which a schedule
    may lower. notes: what its statistics should say beside the rounds' own."""

    def __init__(
        self,
        generation: Sequenced,
        *,
        index: int,
        tokenizer: Any,
        detokenizer: Detokenizer | None,
        skip_special_tokens: bool,
        stop_strings: Sequence[str],
        on_round: Callable[[Round], None] | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        self.generation, self._index = generation, index
        self._tokenizer, self._detokenizer, self._skip = tokenizer, detokenizer, skip_special_tokens
        self._stop_strings, self._on_round, self._cancel = stop_strings, on_round, cancel
        self.num_speculative_tokens = generation.num_speculative_tokens
        self._num_prompt_tokens = len(generation.context)
        self._num_cached_tokens = generation.session.length
        self._released = self._shown_rounds = self._shown_tokens = 0
        self._begin = perf_counter()
        self.rounds: list[Round] = []
        self.notes: dict[str, None] = {}
        self.seconds = self.first_token_seconds = 0.0
        self.error: Exception | None = None

    def ended(self) -> bool:
        """Whether there is no further round, the caller having cancelled included."""
        if self._cancel is not None and self._cancel.is_set():
            self.generation.stopper.cut("abort")
        return self.generation.finished

    def round(self) -> Generator[Step, Output, None]:
        """One round, with its passes asked for as the generation asks for them; then it is noted.
        Not once `ended`."""
        record = yield from self.generation.round()
        self.rounds.append(record)
        if self._on_round is not None:
            self._on_round(record)
        self.seconds = perf_counter() - self._begin
        self.first_token_seconds = self.first_token_seconds or self.seconds

    @property
    def unread(self) -> int:
        """Tokens of the context that the next round reads beside its draft; one, once the prompt is
        read. A prompt that is to be scored is read from its first token."""
        if is_to_be_scored(self.generation) and not self.generation.prompt_logprobs:
            return len(self.generation.context)
        return len(self.generation.context) - self.generation.session.length

    def read(self, count: int) -> Generator[Step, Output, None]:
        """Read `count` more tokens of the prompt, and leave at least one to the next round."""
        return read_ahead(self.generation, min(count, self.unread - 1))

    def fail(self, error: Exception) -> None:
        """End the text with what has been committed, because of `error`."""
        self.error = error
        self.generation.stopper.cut("error")

    @property
    def has_news(self) -> bool:
        """Whether there were rounds since `news` was asked."""
        return self._shown_rounds < len(self.rounds)

    def news(self) -> Update:
        """What the rounds since the last call brought, and the text that was held back when the
        caller has cancelled."""
        rounds, self._shown_rounds = self.rounds[self._shown_rounds :], len(self.rounds)
        shown, generation = self._shown_tokens, self.generation
        return Update(
            self._index,
            pieces=tuple(self._new_pieces(rounds)),
            rounds=tuple(rounds),
            logprobs=None
            if generation.params.logprobs is None
            else tuple(generation.logprobs[shown:]),
            prompt_logprobs=tuple(generation.prompt_logprobs)
            if rounds and shown == 0 and generation.prompt_logprobs
            else None,
            seconds=self.seconds,
            failure=None if self.error is None else explain(self.error),
        )

    def _new_pieces(self, rounds: Sequence[Round]) -> Iterator[Piece]:
        """One piece for each stretch of tokens of one origin."""
        for record in rounds:
            yield from self._pieces_of(
                record, self.generation.stopper.finish if record is self.rounds[-1] else None
            )
        finish = self.generation.stopper.finish
        if finish is not None and finish.reason == "abort":
            origin = self.rounds[-1].origins[-1] if self.rounds else "plain"
            yield Piece(
                self._release(self._shown_tokens, ends=True),
                (),
                origin,
                finish.reason,
                None,
                self._index,
            )

    def _pieces_of(self, record: Round, finish: Finish | None) -> Iterator[Piece]:
        pairs = groupby(zip(record.origins, record.tokens, strict=True), key=lambda pair: pair[0])
        stretches = [(origin, tuple(token for _, token in group)) for origin, group in pairs]
        for number, (origin, tokens) in enumerate(stretches):
            self._shown_tokens += len(tokens)
            ended = finish if number == len(stretches) - 1 else None
            text = self._release(self._shown_tokens, ends=ended is not None)
            reason, stop_reason = (ended.reason, ended.stop_reason) if ended else (None, None)
            yield Piece(text, tokens, origin, reason, stop_reason, self._index)

    def completion(self, stats: Statistics) -> Completion:
        """The finished sample."""
        finish = self.generation.stopper.finish
        assert finish is not None
        token_ids = tuple(self.generation.context[self._num_prompt_tokens :])
        return Completion(
            index=self._index,
            text=self._text(token_ids),
            token_ids=token_ids,
            origins=tuple(origin for record in self.rounds for origin in record.origins),
            finish_reason=finish.reason,
            stop_reason=finish.stop_reason,
            logprobs=None
            if self.generation.params.logprobs is None
            else tuple(self.generation.logprobs),
            stats=stats,
            rounds=tuple(self.rounds),
            seconds=self.seconds,
            first_token_seconds=self.first_token_seconds,
            num_cached_tokens=self._num_cached_tokens,
            error=None if self.error is None else explain(self.error),
        )

    def _text(self, token_ids: Sequence[int]) -> str:
        if self._tokenizer is None:
            return ""
        stopper = self.generation.stopper
        shown = token_ids[:-1] if stopper.hides_last else token_ids
        return decode_all(self._tokenizer, shown, self._skip)[: stopper.text_end]

    def _release(self, count: int, ends: bool) -> str:
        """The text that may be shown once `count` tokens are out: whole characters, nothing that
        may begin a stop string."""
        if self._detokenizer is None:
            return ""
        if ends:
            self._detokenizer.close()
        text = self._detokenizer.text[: self.generation.stopper.text_end]
        end = len(text)
        if not ends:
            written = self._detokenizer.written.text
            may_stop = self._detokenizer.shown(
                len(written) - _held_back(written, self._stop_strings)
            )
            end = min(self._detokenizer.ends[count - 1], may_stop)
        piece, self._released = text[self._released : end], max(end, self._released)
        return piece


def _held_back(text: str, stop_strings: Sequence[str]) -> int:
    """Length of the longest end of `text` that begins some stop string."""
    longest = max((len(stop) - 1 for stop in stop_strings), default=0)
    for length in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stop_strings):
            return length
    return 0
