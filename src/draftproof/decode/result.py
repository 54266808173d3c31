"""What a caller receives: a Result with its outputs, or Pieces as they come."""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.core.records import Origin, Round
from draftproof.decode.logprobs import TokenLogprobs
from draftproof.decode.statistics import Statistics
from draftproof.decode.stopping import FinishReason


@dataclass(frozen=True)
class Piece:
    """One stretch of tokens of one origin, as it is committed.

    text: what became readable with them (possibly ""; joined, the pieces are the final text).
    token_ids: the committed ids. finish_reason, stop_reason: set on the last piece of a sample.
    index: the sample, for n > 1."""

    text: str
    token_ids: tuple[int, ...]
    origin: Origin
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    index: int = 0


@dataclass(frozen=True)
class Completion:
    """One sample. Text, ids, log-probabilities, rounds and stats all end at the same token.

    origins: where each token came from. seconds: wall time from its beginning, first_token_seconds
    until its first token; in a batch that time is shared with its neighbours. num_cached_tokens:
    how many of the prompt were read before this request (vLLM's name). error: what went wrong, when
    finish_reason is "error"."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    origins: tuple[Origin, ...]
    finish_reason: FinishReason
    stop_reason: int | str | None
    logprobs: tuple[TokenLogprobs, ...] | None
    stats: Statistics
    rounds: tuple[Round, ...]
    seconds: float
    first_token_seconds: float
    num_cached_tokens: int = 0
    error: str | None = None

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens per second of wall time, reading the prompt included; 0 when it ended
        before its first round."""
        return len(self.token_ids) / self.seconds if self.seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float | None:
        """The same without reading the prompt: tokens after the first round per second after it;
        None when there are none."""
        later = len(self.token_ids) - len(self.rounds[0].tokens) if self.rounds else 0
        return later / (self.seconds - self.first_token_seconds) if later else None


@dataclass(frozen=True)
class Update:
    """What a round, or its end, added to one sample. index: which. prompt_logprobs: with its first
    tokens, where asked for.

    seconds: since the sample began. completion: the whole, when this ended it. failure: what went
    wrong, when an error did."""

    index: int
    pieces: tuple[Piece, ...] = ()
    rounds: tuple[Round, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    seconds: float = 0.0
    completion: Completion | None = None
    failure: str | None = None

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token for piece in self.pieces for token in piece.token_ids)

    @property
    def origins(self) -> tuple[Origin, ...]:
        return tuple(piece.origin for piece in self.pieces for _ in piece.token_ids)


@dataclass(frozen=True)
class Result:
    """All samples of one prompt; the first one's fields, but for its stats, are also this object's.

    seed: the seed that replays the result, drawn when none was given. stats: the totals of all
    samples; each output has its own."""

    prompt_token_ids: tuple[int, ...]
    outputs: tuple[Completion, ...]
    seed: int
    stats: Statistics
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.outputs[0].token_ids

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...] | None:
        return self.outputs[0].logprobs

    @property
    def finish_reason(self) -> FinishReason:
        return self.outputs[0].finish_reason

    @property
    def stop_reason(self) -> int | str | None:
        return self.outputs[0].stop_reason

    @property
    def num_cached_tokens(self) -> int:
        return self.outputs[0].num_cached_tokens

    @property
    def error(self) -> str | None:
        return self.outputs[0].error

    @property
    def rounds(self) -> tuple[Round, ...]:
        return self.outputs[0].rounds

    @property
    def seconds(self) -> float:
        return self.outputs[0].seconds

    @property
    def tokens_per_second(self) -> float:
        return self.outputs[0].tokens_per_second
