"""What all endpoints share: the decoders, the worker, and how a body's prompts become work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from draftproof.core.params import SamplingParams
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.decoder import SpeculativeDecoder
from draftproof.decode.request import GenerationRequest
from draftproof.errors import UsageError
from draftproof.serve.decoders import Decoders
from draftproof.serve.errors import ApiError, of_usage, refuse
from draftproof.serve.metrics import Metrics
from draftproof.serve.params import (
    SCHEMA,
    asked,
    check_best_of,
    prediction_text,
    sampling_params,
)
from draftproof.serve.prefix_cache import PrefixCache
from draftproof.serve.scheduler import Scheduler
from draftproof.serve.schemas import Sampled
from draftproof.serve.settings import Settings
from draftproof.serve.tokens import Tokens
from draftproof.serve.tools import parser_for
from draftproof.serve.worker import Worker

Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Prompt:
    """One prompt, checked, with everything that its texts need."""

    request: GenerationRequest
    decoder: SpeculativeDecoder

    @property
    def ids(self) -> tuple[int, ...]:
        return self.request.prompt_token_ids

    @property
    def params(self) -> SamplingParams:
        return self.request.params


class Service:
    """One target, served. decoder: how requests are drafted unless they say otherwise; its
    tokenizer reads prompts."""

    def __init__(self, decoder: SpeculativeDecoder, settings: Settings) -> None:
        if decoder.tokenizer is None:
            raise UsageError(
                f"{decoder.target.name} has no tokenizer, so it cannot read a prompt of text"
            )
        self.settings, self.target, self.tokenizer = settings, decoder.target, decoder.tokenizer
        self.tokens, self.metrics = Tokens(decoder.tokenizer), Metrics(settings.model)
        self.created = int(time.time())
        self.tool_call_parser = settings.tool_call_parser or parser_for(
            getattr(decoder.tokenizer, "chat_template", None)
        )
        prefixes = PrefixCache(settings.prefix_cache_bytes, self._session_bytes)
        scheduler = Scheduler(
            decoder,
            prefixes,
            max_num_seqs=settings.max_num_seqs,
            piece=settings.prompt_piece,
            on_row=self.metrics.row,
        )
        self.worker = Worker(scheduler, settings.max_num_seqs + settings.max_queue)
        self.decoders = Decoders(decoder, self._build, lossless=settings.lossless)
        self._checking = ThreadPoolExecutor(1, "draftproof-checking")
        self.is_stopping = False
        self._watch(scheduler)

    async def check(self, job: Callable[..., Returned], *arguments: Any) -> Returned:
        """Run what reads and checks a request beside the event loop, one at a time: tokenizers are
        not made for more."""
        return await asyncio.get_running_loop().run_in_executor(self._checking, job, *arguments)

    def prompt(
        self,
        ids: Sequence[int],
        field: str,
        body: Sampled,
        limit: tuple[str, int | None],
        bound: Mapping[str, Any] | None = None,
        **scores: int | None,
    ) -> Prompt:
        """A prompt of ids with the body's parameters, or an ApiError. field: where the prompt
        stands. limit: the field that limits the text, and how. bound: structured outputs that
        another field asks for. scores: logprobs, prompt_logprobs."""
        check_best_of(body)
        self._check_ids(ids, field)
        limited_by, max_tokens = limit
        self._check_length(len(ids), field, limited_by, max_tokens, body.min_tokens)
        decoder, length = self.decoders.choose(body.speculative_config, bool(prediction_text(body)))
        given = asked(body) | {name: value for name, value in scores.items() if value is not None}
        if bound is not None:
            given["structured_outputs"] = bound
        params = sampling_params(
            given, max_tokens, self.target.generation_config, len(ids), self.target.vocab_size
        )
        try:
            return Prompt(
                decoder.request(list(ids), replace(params, num_speculative_tokens=length)), decoder
            )
        except UsageError as error:
            raise _refusal(error, given, body, bound is not None) from error

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """The ids of a text that is no chat."""
        return list(self.tokenizer.encode(text, add_special_tokens=add_special_tokens))

    def check_count(self, n: int, num_prompts: int) -> None:
        """ApiError for more texts than a request may have."""
        if not 1 <= n * num_prompts <= self.settings.max_texts:
            many = f"n is {str(n)[:40]}" + (
                f" for each of {num_prompts} prompts" if num_prompts > 1 else ""
            )
            refuse("n", f"{many}; allowed: 1 to {self.settings.max_texts} texts together")

    def stop(self) -> None:
        """Finish what was taken, and free everything."""
        self.is_stopping = True
        self.worker.stop()
        self._checking.shutdown()

    def _build(self, config: SpeculativeConfig) -> SpeculativeDecoder:
        made = SpeculativeDecoder(None, self.target, self.tokenizer, speculative_config=config)
        self.worker.call(made.measure_costs).result()  # beside no pass of another request
        return made

    def _check_ids(self, ids: Sequence[int], field: str) -> None:
        if not ids:
            refuse(field, f"{field} is empty; give at least one token")
        beyond = next((token for token in ids if not 0 <= token < self.target.vocab_size), None)
        if beyond is not None:
            refuse(
                field,
                (
                    f"{field} holds token {str(beyond)[:40]}; ids go from 0 to "
                    f"{self.target.vocab_size - 1}"
                ),
            )

    def _check_length(
        self,
        count: int,
        field: str,
        limited_by: str,
        max_tokens: int | None,
        min_tokens: int | None,
    ) -> None:
        most = self.target.max_length
        if max_tokens is not None and max_tokens < 1:
            refuse(limited_by, f"{limited_by} is {max_tokens}; allowed: a whole number from 1")
        if most is None:
            if max_tokens is None:
                refuse(
                    limited_by, f"{limited_by} is needed: the model has no context limit to stop at"
                )
            return
        if count >= most:
            message = (
                f"{field} has {count} tokens; the model's context holds {most}, and one must "
                "be left to write"
            )
            raise ApiError(message, field, code="context_length_exceeded")
        for name, wanted in ((limited_by, max_tokens), ("min_tokens", min_tokens)):
            if wanted is not None and count + wanted > most:
                message = (
                    f"{name} is {str(wanted)[:40]}, and {field} has {count} tokens; the "
                    f"model's context holds {most} together"
                )
                raise ApiError(message, name, code="context_length_exceeded")

    def _session_bytes(self, num_tokens: int) -> int:
        size = self.target.session_bytes(num_tokens)
        return num_tokens if size is None else size

    def _watch(self, scheduler: Scheduler) -> None:
        capacity = self.settings.max_num_seqs * (self.target.max_length or 0)
        self.metrics.watch("num_requests_running", lambda: scheduler.num_running)
        self.metrics.watch("num_requests_waiting", lambda: self.worker.num_waiting)
        self.metrics.watch(
            "kv_cache_usage_perc",
            lambda: min(1.0, scheduler.num_tokens / capacity) if capacity else 0.0,
        )


def _refusal(
    error: UsageError, given: Mapping[str, Any], body: Sampled, is_forced: bool
) -> ApiError:
    """What the library complains about, under the name of the field that said it. is_forced: a call
    is, so the grammar is of the tools."""
    about_grammar = any(
        word in str(error) for word in ("structured_outputs", "grammar", "schema", "regex")
    )
    if "structured_outputs" in given and about_grammar:
        if is_forced:
            return _renamed(error, "structured_outputs.grammar", "tools")
        if body.structured_outputs is not None:
            return of_usage(error, "structured_outputs")
        is_schema = body.response_format is not None and body.response_format.json_schema
        named = SCHEMA if is_schema else "response_format"
        return _renamed(error, "structured_outputs.json", named)
    return of_usage(error, next((name for name in given if name in str(error)), None))


def _renamed(error: UsageError, name: str, field: str) -> ApiError:
    said = of_usage(error, field)
    said.message = said.message.replace(name, field)
    return said
