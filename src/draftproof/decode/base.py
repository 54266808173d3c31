"""What every decoder shares, and plain decoding: prompts, parameters, one request or many, streams, chats, results."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from draftproof.core.chance import KeyedChance, stream_key
from draftproof.core.coupled import CoupledChance
from draftproof.core.params import SamplingParams
from draftproof.core.pipeline import LawPipeline
from draftproof.core.processor_state import with_forks
from draftproof.core.structured import StructuredOutputs
from draftproof.decode.batch import set_draft_length
from draftproof.decode.many import Request as Asked
from draftproof.decode.many import finished, run_requests
from draftproof.decode.memory import fitting_batch_size
from draftproof.decode.plain import PlainGeneration
from draftproof.decode.prompts import Prompt, is_batch, prompt_ids
from draftproof.decode.result import Piece, Result
from draftproof.decode.samples import Cancel, Sample
from draftproof.decode.schedule import BatchSchedule
from draftproof.decode.seeds import with_seeds_of_their_own
from draftproof.decode.statistics import Statistics, statistics
from draftproof.decode.stopping import Stopper
from draftproof.decode.template import Message, TemplateKeys, TemplateOptions
from draftproof.decode.text import Detokenizer
from draftproof.drafters.protocol import Drafter, DraftSession, Request
from draftproof.errors import UsageError
from draftproof.models.protocol import LanguageModel, Session

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from draftproof.core.records import Round
    from draftproof.decode.chat import Chat, DecoderSession

OpenDrafter = Callable[[Drafter, Request], DraftSession]
"""How a sample comes by its drafter's session."""


class Decoder:
    """What plain and speculative decoding share: prompts, parameters, samples, results. Holds no state between calls."""

    def __init__(self, target: LanguageModel, tokenizer: Any = None) -> None:
        self.target, self.tokenizer = target, tokenizer

    drafter: Drafter | None = None
    draft_schedule: BatchSchedule | None = None
    """The draft length by batch size, where one was given."""

    @property
    def longest_draft(self) -> int:
        """Most tokens of one draft."""
        return 0

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
        """Generate for one prompt (a string, token ids or chat messages) -> Result, or for a list of prompts -> list[Result].

        params: one SamplingParams, or one for each prompt of a list; without them the model's own generation config counts.
        batch_size: how many sequences run at a time; by default 8, or as many as fit into the free memory. cancel: anything
        with `is_set()`, such as a threading.Event; once set, the text ends within one round with finish_reason "abort".
        monitor: test every emitted token while decoding; the statistics then carry what it saw in all texts so far. chat:
        how messages become text (tools, chat_template_kwargs, add_generation_prompt, continue_final_message), see
        `TemplateOptions`.

        Wrong input raises UsageError before any work. Among several prompts, one that fails later for a reason of its own
        (memory, invalid logits) has finish_reason "error" and `error`; a single one raises."""
        if monitor:
            return self.monitored().generate(prompt, params, batch_size=batch_size, cancel=cancel, **chat)
        if not is_batch(prompt):
            return self._generate(self.request(prompt, params, **chat), batch_size, cancel)
        results = dict(self.as_finished(prompt, params, batch_size=batch_size, cancel=cancel, **chat))
        return [results[index] for index in range(len(prompt))]

    def monitored(self) -> Decoder:
        """A copy that tests every emitted token. UsageError where there is nothing to test."""
        raise UsageError("plain decoding draws every token from the target's law itself: there is nothing to monitor")

    def as_finished(
        self,
        prompts: Sequence[Any],
        params: Any = None,
        *,
        batch_size: int | None = None,
        cancel: Cancel | None = None,
        **chat: Unpack[TemplateKeys],
    ) -> Iterator[tuple[int, Result]]:
        """Like `generate` for a list of prompts: (index, Result) of each as soon as it is ready. Everything wrong is refused by
        this call, before the first `next`. Closing the iterator ends the work and frees everything."""
        requests = self._requests(prompts, params, **chat)
        size, _ = fitting_batch_size(self, requests, batch_size)
        return run_requests(self, requests, size, cancel)

    def batch_bytes(
        self, prompts: Sequence[Any], params: Any = None, *, batch_size: int | None = None, **chat: Unpack[TemplateKeys]
    ) -> tuple[int, int | None]:
        """The batch size that `generate` would use for these prompts, and the bytes it needs at most beside the weights (None
        when the target cannot tell)."""
        return fitting_batch_size(self, self._requests(prompts, params, **chat), batch_size)

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        on_round: Callable[[Round], None] | None = None,
        cancel: Cancel | None = None,
        **chat: Unpack[TemplateKeys],
    ) -> Generator[Piece, None, Result]:
        """Generate for one prompt, piece by piece. Closing the iterator ends the work and frees everything; from another
        thread, set `cancel`: the stream ends within one round.

        `on_round` is called with every Round as it ends. The generator's value is the Result: `yield from` gives it."""
        if is_batch(prompt):
            raise UsageError("stream() takes one prompt; call it once for each")
        return self._run(self.request(prompt, params, **chat), on_round, cancel)

    def _generate(self, request: Asked, batch_size: int | None, cancel: Cancel | None) -> Result:
        size = 1
        if request[1].n > 1 or batch_size is not None:
            size, _ = fitting_batch_size(self, [request], batch_size)
        for _, result in run_requests(self, [request], size, cancel, raises=True):
            return result
        raise AssertionError("one request gives one result")

    def _run(
        self, request: Asked, on_round: Callable[[Round], None] | None, cancel: Cancel | None
    ) -> Generator[Piece, None, Result]:
        """All samples of one prompt, one after another, in pieces."""
        ids, params = request
        session = self.target.open()
        samples: dict[int, Sample] = {}
        try:
            for index in range(params.n):
                samples[index] = self.sample(session, ids, params, index, streams=True, on_round=on_round, cancel=cancel)
                set_draft_length(samples[index], self.draft_schedule, 1)
                yield from samples[index].pieces()
        finally:
            session.close()
        return finished(self, request, samples)

    def sample(
        self,
        session: Session,
        ids: tuple[int, ...],
        params: SamplingParams,
        index: int,
        *,
        streams: bool = False,
        on_round: Callable[[Round], None] | None = None,
        cancel: Cancel | None = None,
        open_drafter: OpenDrafter | None = None,
    ) -> Sample:
        """Sample `index` of a request, ready to run over `session`, which has read a prefix of `ids` or nothing.

        open_drafter: how the drafter's session comes about, for those who keep it; by default it is opened for this sample."""
        generation = self._generation(session, ids, params, index, streams, open_drafter)
        return Sample(
            generation,
            index=index,
            tokenizer=self.tokenizer,
            detokenizer=generation.stopper.detokenizer if streams else None,
            skip_special_tokens=params.skip_special_tokens,
            stop_strings=() if params.include_stop_str_in_output else tuple(params.stop or ()),
            on_round=on_round,
            cancel=cancel,
        )

    def _requests(self, prompts: Sequence[Any], params: Any, **chat: Unpack[TemplateKeys]) -> list[Asked]:
        """Every prompt's ids and parameters; a UsageError of one of several says which."""
        if isinstance(prompts, str) or not isinstance(prompts, Sequence):
            raise UsageError("several prompts are a list of strings, lists of token ids or lists of chat messages")
        if isinstance(params, Sequence):
            if len(params) != len(prompts):
                raise UsageError(
                    f"params is a list of {len(params)} for {len(prompts)} prompts; give one for each, or one for all"
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
    ) -> tuple[tuple[int, ...], SamplingParams]:
        """The prompt's ids and complete parameters, or a UsageError: everything that can be refused is refused here."""
        ids = self.prompt_ids(prompt, **chat)
        limit = self.target.max_length
        if limit is not None and len(ids) >= limit:
            raise UsageError(
                f"the prompt has {len(ids)} tokens; {self.target.name} holds {limit}, and one must be left to generate"
                + (f" ({reason})" if (reason := self.target.limit_note) else "")
            )
        params = self._params(params, len(ids))
        if params.max_tokens is None and limit is None:
            raise UsageError(f"max_tokens is needed: {self.target.name} has no context limit to stop at")
        self._pipeline(ids, params)  # refuses token ids outside the vocabulary, and bans that leave no token
        if self.drafter_for(params) is None:  # refuses a draft length that the drafter does not have
            return ids, params
        return ids, self._with_forks(ids, params)

    def _with_forks(self, ids: Sequence[int], params: SamplingParams) -> SamplingParams:
        """The parameters, logits processors with a state of their own marked to be copied along drafts, or refused."""
        target = self.target
        fork = partial(with_forks, prompt=ids, vocab_size=target.vocab_size, device=target.output_device)
        processors, warpers = fork(params.logits_processors), fork(params.logits_warpers)
        return replace(params, logits_processors=processors, logits_warpers=warpers) if processors or warpers else params

    def _params(self, params: SamplingParams | None, num_prompt_tokens: int) -> SamplingParams:
        """Complete parameters: the model's defaults if none were given, a seed, strings turned into ids."""
        if params is None:
            config = self.target.generation_config
            params = SamplingParams()
            if config is not None:
                params = SamplingParams.from_generation_config(
                    config, num_prompt_tokens=num_prompt_tokens, vocab_size=self.target.vocab_size
                )
        if not isinstance(params, SamplingParams):
            raise UsageError(f"params is a {type(params).__name__}; it is a SamplingParams, or None for the model's defaults")
        if params.seed is None:
            params = replace(params, seed=secrets.randbits(63))
        params = self._resolved(params)
        if params.stop and self.tokenizer is None:
            raise UsageError("stop strings need a tokenizer; give stop_token_ids instead")
        return params

    def _resolved(self, params: SamplingParams) -> SamplingParams:
        """Strings turned into ids; UsageError where that needs a tokenizer, and for expected ids the target does not have."""
        if self.tokenizer is None and params.bad_words:
            raise UsageError("bad_words needs a tokenizer; give bad_words_ids instead")
        if self.tokenizer is None and isinstance(params.prediction, str):
            raise UsageError("a prediction that is a string needs a tokenizer; give its token ids instead")
        params = self._with_grammar(params.resolve(self.tokenizer))
        beyond = [token for token in params.prediction or () if int(token) >= self.target.vocab_size]
        if beyond:
            raise UsageError(f"prediction holds token {beyond[0]}; ids go from 0 to {self.target.vocab_size - 1}")
        return params

    def _with_grammar(self, params: SamplingParams) -> SamplingParams:
        """The parameters with the grammar of structured outputs compiled for this target; UsageError where it cannot be."""
        asked = params.structured_outputs
        if not isinstance(asked, StructuredOutputs):
            return params
        if self.tokenizer is None:
            raise UsageError("structured_outputs needs a tokenizer, which says how the grammar is spelled in token ids")
        from draftproof.grammars.guidance import compile_grammar

        size, ends = self.target.vocab_size, self.target.eos_token_ids
        return replace(params, structured_outputs=compile_grammar(asked, self.tokenizer, vocab_size=size, eos_token_ids=ends))

    def _stopper(self, ids: Sequence[int], params: SamplingParams, streams: bool) -> Stopper:
        room = None if self.target.max_length is None else self.target.max_length - len(ids)
        limit = min(n for n in (params.max_tokens, room) if n is not None)
        detokenizer = None
        if self.tokenizer is not None and (streams or params.stop):
            skip, watched = params.skip_special_tokens, bool(params.stop)
            detokenizer = Detokenizer(self.tokenizer, skip_special_tokens=skip, keeps_written=watched)
        return Stopper(params, eos_token_ids=self.target.eos_token_ids, limit=limit, detokenizer=detokenizer)

    def _pipeline(self, ids: Sequence[int], params: SamplingParams, follows: LawPipeline | None = None) -> LawPipeline:
        return LawPipeline(
            params,
            num_prompt_tokens=len(ids),
            vocab_size=self.target.vocab_size,
            eos_token_ids=self.target.eos_token_ids,
            follows=follows,
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
        """A conversation that keeps what it has read; see `Chat`. params: for turns that bring none of their own. tools,
        chat_template_kwargs: of every turn, see `TemplateOptions`."""
        from draftproof.decode.chat import Chat

        options = TemplateOptions(tools, chat_template_kwargs)
        return Chat(self, system=system, messages=messages, params=params, options=options)

    def session(self) -> DecoderSession:
        """The same for prompts of any kind: each reads only what differs from the last; see `DecoderSession`."""
        from draftproof.decode.chat import DecoderSession

        return DecoderSession(self)

    def drafter_for(self, params: SamplingParams) -> Drafter | None:
        """The drafter of a request with these parameters; None where it is decoded plainly."""
        return None

    def reads_states(self, params: SamplingParams) -> bool:
        """Whether the drafter needs the target's hidden states over the whole text: a new session of it cannot go on from a
        prompt that was read before."""
        drafter = self.drafter_for(params)
        return drafter is not None and bool(drafter.wants.hidden)

    def _generation(
        self,
        session: Session,
        ids: tuple[int, ...],
        params: SamplingParams,
        index: int,
        streams: bool,
        open_drafter: OpenDrafter | None = None,
    ) -> Any:
        raise TypeError("Decoder is the common part; use SpeculativeDecoder, or its .plain")

    def statistics(self, samples: Sequence[Sample], params: SamplingParams) -> Statistics:
        """The totals of samples of one request."""
        rounds = [record for sample in samples for record in sample.rounds]
        notes = [note for sample in samples for note in sample.notes]
        return statistics(rounds, rows=self.target.rows, notes=notes)


class PlainDecoder(Decoder):
    """The target alone. coupled: draw by position-keyed Gumbel noise, as the rule `gumbel` does, so that texts are the same."""

    def __init__(self, target: LanguageModel, tokenizer: Any = None, *, coupled: bool = False) -> None:
        super().__init__(target, tokenizer)
        self.coupled = coupled

    def _generation(
        self,
        session: Session,
        ids: tuple[int, ...],
        params: SamplingParams,
        index: int,
        streams: bool,
        open_drafter: OpenDrafter | None = None,
    ) -> PlainGeneration:
        if index > 0:
            params = replace(params, prompt_logprobs=None)
        session.rollback(min(session.length, len(ids) - 1))
        return PlainGeneration(
            session=session,
            context=list(ids),
            params=params,
            pipeline=self._pipeline(ids, params),
            stopper=self._stopper(ids, params, streams),
            chance_at=chance_for(self.coupled, stream_key(params.seed or 0, index, prompt=ids)),
        )


def chance_for(coupled: bool, stream: tuple[int, int]) -> Callable[[int], KeyedChance]:
    """Chance of a stream's rounds, by the committed length at which they begin."""
    return partial(CoupledChance if coupled else KeyedChance, stream)
