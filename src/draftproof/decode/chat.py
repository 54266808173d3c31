"""Chats that go on: what a turn has read stays read, by the target and by the drafter.

A `DecoderSession` keeps one target session. A new prompt rolls it back to the longest common prefix
and reads the rest, so the text is that of a cold run whatever became of the earlier text: a
template that renders it anew, an edited message, another chat. A `Chat` keeps the messages as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from draftproof.core.params import SamplingParams
from draftproof.core.records import Round
from draftproof.decode.engine import Engine
from draftproof.decode.kept_sessions import KeptSessions
from draftproof.decode.prompts import Prompt, is_batch
from draftproof.decode.request import GenerationRequest
from draftproof.decode.result import Piece, Result
from draftproof.decode.samples import Cancel
from draftproof.decode.template import NO_OPTIONS, Message, TemplateKeys, TemplateOptions
from draftproof.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Conversing(Protocol):
    """What a conversation needs of a `Decoder`."""

    tokenizer: Any

    def prompt_ids(self, prompt: Any, **chat: Unpack[TemplateKeys]) -> tuple[int, ...]: ...

    def request(
        self, prompt: Any, params: SamplingParams | None, **chat: Unpack[TemplateKeys]
    ) -> GenerationRequest: ...

    def engine(self, max_num_seqs: int) -> Engine: ...


class DecoderSession:
    """Prompts that mostly continue one another, one at a time; a context manager. Closing it frees
    what has been read."""

    def __init__(self, decoder: Conversing) -> None:
        self._decoder, self._kept = decoder, KeptSessions()
        self._turn = threading.Lock()

    @property
    def num_tokens(self) -> int:
        """Tokens read and kept."""
        return self._kept.num_tokens

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        cancel: Cancel | None = None,
        **chat: Unpack[TemplateKeys],
    ) -> Result:
        """Like the decoder's `generate` for one prompt; `num_cached_tokens` of the result says how
        many were not read again."""
        return _result_of(self.stream(prompt, params, cancel=cancel, **chat))

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        on_round: Callable[[Round], None] | None = None,
        cancel: Cancel | None = None,
        **chat: Unpack[TemplateKeys],
    ) -> Generator[Piece, None, Result]:
        """Like the decoder's `stream`. UsageError for several prompts or samples, and while another
        turn runs."""
        if is_batch(prompt):
            raise UsageError("a session takes one prompt at a time")
        request = self._decoder.request(prompt, params, **chat)
        if request.params.n != 1:
            raise UsageError(f"a session takes one text at a time; n is {request.params.n}")
        return self._run(request, on_round, cancel)

    def close(self) -> None:
        """Free everything. Idempotent; a later turn starts cold."""
        self._kept.close()

    def __enter__(self) -> DecoderSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(
        self,
        request: GenerationRequest,
        on_round: Callable[[Round], None] | None,
        cancel: Cancel | None,
    ) -> Generator[Piece, None, Result]:
        with self._one_at_a_time():
            return (
                yield from self._decoder.engine(1).stream(
                    request, on_round=on_round, cancel=cancel, kept=self._kept
                )
            )

    @contextmanager
    def _one_at_a_time(self) -> Generator[None, None, None]:
        """A turn that fails, or is interrupted within a round, leaves nothing behind; one that is
        closed or cancelled ends between two rounds and keeps what was read."""
        if not self._turn.acquire(blocking=False):
            raise UsageError(
                "this session is busy with another turn; open one session for each conversation"
            )
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException:
            self.close()
            raise
        finally:
            self._turn.release()


class Chat:
    """A conversation with a model that has a chat template; a context manager.

    messages: the history, which may be edited between turns; the next turn reads anew from the
    first token that differs."""

    def __init__(
        self,
        decoder: Conversing,
        *,
        system: str | None = None,
        messages: Sequence[Message] = (),
        params: Any = None,
        options: TemplateOptions = NO_OPTIONS,
    ) -> None:
        if not getattr(decoder.tokenizer, "chat_template", None):
            raise UsageError(
                "a chat needs a tokenizer with a chat template; use decoder.session() "
                "for prompts without one"
            )
        if system is not None and messages:
            raise UsageError("system is the first of messages: leave one of them out")
        self.messages: list[dict[str, Any]] = [dict(message) for message in messages]
        if system is not None:
            self.messages = [{"role": "system", "content": system}]
        self._first = len(self.messages)
        self._params = params
        self._chat: TemplateKeys = {
            "tools": options.tools,
            "chat_template_kwargs": options.chat_template_kwargs,
        }
        self._decoder, self._session = decoder, DecoderSession(decoder)

    @property
    def num_tokens(self) -> int:
        """Tokens read and kept."""
        return self._session.num_tokens

    def send(
        self, text: str, params: SamplingParams | None = None, *, cancel: Cancel | None = None
    ) -> Result:
        """The answer to `text`; both become part of the history."""
        return _result_of(self.stream(text, params, cancel=cancel))

    def stream(
        self,
        text: str,
        params: SamplingParams | None = None,
        *,
        on_round: Callable[[Round], None] | None = None,
        cancel: Cancel | None = None,
    ) -> Generator[Piece, None, Result]:
        """The answer piece by piece. A turn that is cancelled enters the history with what was
        said; one that is closed or fails does not enter it."""
        asked = [*self.messages, {"role": "user", "content": text}]
        pieces = self._session.stream(
            asked, params or self._params, on_round=on_round, cancel=cancel, **self._chat
        )
        return self._record(asked, pieces)

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """The ids of the history with `text` asked: what the next turn is to have read."""
        return self._decoder.prompt_ids(
            [*self.messages, {"role": "user", "content": text}], **self._chat
        )

    def undo(self) -> None:
        """Take back the last question and its answer. UsageError when there is none."""
        users = [place for place, message in enumerate(self.messages) if message["role"] == "user"]
        if not users or users[-1] < self._first:
            raise UsageError("there is no turn to take back")
        del self.messages[users[-1] :]

    def reset(self) -> None:
        """Begin again after the messages that the chat was opened with."""
        del self.messages[self._first :]

    def close(self) -> None:
        """Free what has been read. Idempotent; a later turn starts cold."""
        self._session.close()

    def __enter__(self) -> Chat:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _record(
        self, asked: list[dict[str, Any]], pieces: Generator[Piece, None, Result]
    ) -> Generator[Piece, None, Result]:
        result = yield from pieces
        self.messages = [*asked, {"role": "assistant", "content": result.text}]
        return result


def _result_of(turn: Generator[Piece, None, Result]) -> Result:
    """Run a turn to its end, its pieces unseen."""
    while True:
        try:
            next(turn)
        except StopIteration as done:
            result: Result = done.value
            return result
