"""What every decoder shares, and plain decoding: prompts, parameters, one request or many, streams,
chats, results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from draftproof.core.params import SamplingParams
from draftproof.core.records import Round
from draftproof.decode.chat import Chat, DecoderSession
from draftproof.decode.engine import Engine
from draftproof.decode.memory import fitting_batch_size
from draftproof.decode.prompts import Prompt, is_batch, prompt_ids
from draftproof.decode.request import GenerationRequest, checked_request
from draftproof.decode.result import Piece, Result
from draftproof.decode.samples import Cancel
from draftproof.decode.seeds import with_seeds_of_their_own
from draftproof.decode.speculation import Speculation
from draftproof.decode.template import Message, TemplateKeys, TemplateOptions
from draftproof.drafters.protocol import Drafter
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Decoder:
    """What plain and speculative decoding share: it checks requests and hands them to an engine.
    Holds no state between calls but the table of costs that drafting is decided by."""

    def __init__(self, target: LanguageModel, tokenizer: Any = None) -> None:
        self.target, self.tokenizer = target, tokenizer
        self._speculation: Speculation | None = None

    @property
    def drafter(self) -> Drafter | None:
        return None if self._speculation is None else self._speculation.drafter

    @property
    def speculation(self) -> Speculation | None:
        """How texts are drafted, costs measured where they count; None for the target alone."""
        self.measure_costs()
        return self._speculation

    def measure_costs(self) -> None:
        """Have the costs that drafting is decided by measured or counted now, and not by the first
        text."""

    @overload
    def generate(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        cancel: Cancel | None = None,
        monitor: bool = False,
        **chat: Unpack[TemplateKeys],
    ) -> Result: ...
    @overload
    def generate(
        self,
        prompt: Any,
        params: Any = None,
        *,
        batch_size: int | None = None,
        cancel: Cancel | None = None,
        monitor: bool = False,
        **chat: Unpack[TemplateKeys],
    ) -> Any: ...

    def generate(
        self,
        prompt: Any,
        params: Any = None,
        *,
        batch_size: int | None = None,
        cancel: Cancel | None = None,
        monitor: bool = False,
        **chat: Unpack[TemplateKeys],
    ) -> Any:
        """Generate for one prompt (a string, token ids or chat messages) -> Result, or for a list
        of prompts -> list[Result].

        params: one SamplingParams, or one for each prompt of a list; without them the model's own
        generation config counts. batch_size: how many sequences run at a time; by default 8, or as
        many as fit into the free memory. cancel: anything with `is_set()`, such as a
        threading.Event; once set, the text ends within one round with finish_reason "abort".
        monitor: test every emitted token while decoding; the statistics then carry what it saw in
        all texts so far. chat: how messages become text (tools, chat_template_kwargs,
        add_generation_prompt, continue_final_message), see `TemplateOptions`.

        Wrong input raises UsageError before any work. Among several prompts, one that fails later
        for a reason of its own (memory, invalid logits) has finish_reason "error" and `error`; a
        single one raises."""
        if monitor:
            return self.monitored().generate(
                prompt, params, batch_size=batch_size, cancel=cancel, **chat
            )
        if not is_batch(prompt):
            request = self.request(prompt, params, **chat)
            size = (
                1
                if request.params.n == 1 and batch_size is None
                else self._fitting([request], batch_size)
            )
            return self.engine(size).generate(request, cancel)
        results = dict(
            self.as_finished(prompt, params, batch_size=batch_size, cancel=cancel, **chat)
        )
        return [results[index] for index in range(len(prompt))]

    def monitored(self) -> Decoder:
        """A copy that tests every emitted token. UsageError where there is nothing to test."""
        raise UsageError(
            "plain decoding draws every token from the target's law itself: there is "
            "nothing to monitor"
        )

    def as_finished(
        self,
        prompts: Sequence[Any],
        params: Any = None,
        *,
        batch_size: int | None = None,
        cancel: Cancel | None = None,
        **chat: Unpack[TemplateKeys],
    ) -> Iterator[tuple[int, Result]]:
        """Like `generate` for a list of prompts: (index, Result) of each as soon as it is ready.
        Everything wrong is refused by this call, before the first `next`. Closing the iterator ends
        the work and frees everything."""
        requests = self._requests(prompts, params, **chat)
        return self.engine(self._fitting(requests, batch_size)).run(requests, cancel)

    def batch_bytes(
        self,
        prompts: Sequence[Any],
        params: Any = None,
        *,
        batch_size: int | None = None,
        **chat: Unpack[TemplateKeys],
    ) -> tuple[int, int | None]:
        """The batch size that `generate` would use for these prompts, and the bytes it needs at
        most beside the weights (None when the target cannot tell)."""
        return fitting_batch_size(
            self.target, self._speculation, self._requests(prompts, params, **chat), batch_size
        )

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        on_round: Callable[[Round], None] | None = None,
        cancel: Cancel | None = None,
        **chat: Unpack[TemplateKeys],
    ) -> Generator[Piece, None, Result]:
        """Generate for one prompt, piece by piece. Closing the iterator ends the work and frees
        everything; from another thread, set `cancel`: the stream ends within one round.

        `on_round` is called with every Round as it ends. The generator's value is the Result:
        `yield from` gives it."""
        if is_batch(prompt):
            raise UsageError("stream() takes one prompt; call it once for each")
        request = self.request(prompt, params, **chat)
        return self.engine(1).stream(request, on_round=on_round, cancel=cancel)

    def engine(self, max_num_seqs: int) -> Engine:
        """What runs requests of this decoder, at most `max_num_seqs` texts at a time."""
        return Engine(
            self.target, self.speculation, max_num_seqs=max_num_seqs, tokenizer=self.tokenizer
        )

    def _fitting(self, requests: Sequence[GenerationRequest], batch_size: int | None) -> int:
        return fitting_batch_size(self.target, self._speculation, requests, batch_size)[0]

    def _requests(
        self, prompts: Sequence[Any], params: Any, **chat: Unpack[TemplateKeys]
    ) -> list[GenerationRequest]:
        """Every prompt's ids and parameters; a UsageError of one of several says which."""
        if isinstance(prompts, str) or not isinstance(prompts, Sequence):
            raise UsageError(
                "several prompts are a list of strings, lists of token ids or lists of "
                "chat messages"
            )
        if isinstance(params, Sequence):
            if len(params) != len(prompts):
                raise UsageError(
                    f"params is a list of {len(params)} for {len(prompts)} prompts; give "
                    "one for each, or one for all"
                )
        else:
            params = [params] * len(prompts)
        requests = []
        for number, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
            try:
                requests.append(self.request(prompt, one, **chat))
            except UsageError as error:
                raise UsageError(f"prompt {number}: {error}") from error
        return with_seeds_of_their_own(requests)

    def prompt_ids(self, prompt: Any, **chat: Unpack[TemplateKeys]) -> tuple[int, ...]:
        """The ids that `generate` would read for this prompt."""
        return prompt_ids(prompt, self.tokenizer, self.target.vocab_size, TemplateOptions.of(chat))

    def request(
        self, prompt: Any, params: SamplingParams | None, **chat: Unpack[TemplateKeys]
    ) -> GenerationRequest:
        """The request for this prompt, or a UsageError: everything that can be refused is refused
        here."""
        return checked_request(
            self.target, self.tokenizer, self.prompt_ids(prompt, **chat), params, self._speculation
        )

    def chat(
        self,
        *,
        system: str | None = None,
        messages: Sequence[Message] = (),
        params: Any = None,
        tools: Sequence[Any] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> Chat:
        """A conversation that keeps what it has read; see `Chat`. params: for turns that bring none
        of their own. tools, chat_template_kwargs: of every turn, see `TemplateOptions`."""
        options = TemplateOptions(tools, chat_template_kwargs)
        return Chat(self, system=system, messages=messages, params=params, options=options)

    def session(self) -> DecoderSession:
        """The same for prompts of any kind: each reads only what differs from the last; see
        `DecoderSession`."""
        return DecoderSession(self)


class PlainDecoder(Decoder):
    """The target alone. coupled: draw by position-keyed Gumbel noise, as the rule `gumbel` does, so
    that texts are the same."""

    def __init__(
        self, target: LanguageModel, tokenizer: Any = None, *, coupled: bool = False
    ) -> None:
        super().__init__(target, tokenizer)
        self.coupled = coupled

    def engine(self, max_num_seqs: int) -> Engine:
        return Engine(
            self.target, max_num_seqs=max_num_seqs, tokenizer=self.tokenizer, coupled=self.coupled
        )
