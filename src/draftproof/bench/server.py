"""An OpenAI-compatible server as an arm: completions streamed as server-sent events, several tokens
a chunk counted rightly.

A chunk's tokens are taken from what the server says, best first: the running
`usage.completion_tokens`, `token_ids`, the number of `logprobs.tokens`; else the chunk's text
through the tokenizer, and the final usage settles the total. A chunk without text still counts its
tokens. A chunk is never taken for one token.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any
from urllib.parse import SplitResult, urlsplit

from draftproof.bench.runs import Chunk, Run
from draftproof.core.parameters import PARAMETERS, server_fields
from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError

TIMEOUT_SECONDS = 600
_ALWAYS = (
    *("temperature", "top_k", "top_p", "min_p", "repetition_penalty"),
    *("presence_penalty", "frequency_penalty", "max_tokens"),
)
"""Sent whatever their values: servers have defaults of their own for them."""
_NOT_COMPARED = (
    *("logprobs", "prompt_logprobs", "logit_bias", "bad_words", "allowed_token_ids"),
    *("structured_outputs", "prediction", "include_stop_str_in_output"),
)
"""What the arm does not read from an answer, or what servers do not take alike."""
_OURS = ("skip_special_tokens", "n")
"""What shows a text, or multiplies it: the arm asks for ids, one text a request."""


class ServerArm:
    """url: the server's base, with or without /v1. model: its name there (None: the first it
    lists). prompt_as_ids: send token ids, so that both sides read the same prompt; a server that
    refuses them gets text. clock: seconds."""

    remembers = True
    lossless = True
    method = "server"
    rule: str | None = None

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        model: str | None = None,
        tokenizer: Any = None,
        prompt_as_ids: bool = True,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        parts = address(url)
        self._parts, self._base = parts, parts.path.rstrip("/").removesuffix("/v1")
        self.name = name or f"server {parts.netloc}"
        self.tokenizer, self.clock, self.prompt_as_ids = tokenizer, clock, prompt_as_ids
        self.model = model or self._first_model()

    def must_equal_plain(self, params: SamplingParams) -> bool:
        return False

    def run(self, ids: tuple[int, ...], params: SamplingParams) -> Run:
        prompt: Any = (
            list(ids)
            if self.prompt_as_ids or self.tokenizer is None
            else self.tokenizer.decode(ids)
        )
        body = request_body(self.model, prompt, params)
        began = self.clock()
        counter = Counter(self.tokenizer)
        for event in self._events("/v1/completions", body):
            counter.add(event, self.clock() - began)
        seconds = self.clock() - began
        chunks = counter.chunks()
        if not chunks:
            raise UsageError(f"{self.name} sent no token")
        return Run(tuple(counter.token_ids), counter.text, seconds, chunks)

    def _events(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        connection = self._connect()
        try:
            headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
            connection.request("POST", self._base + path, json.dumps(body), headers)
            response = connection.getresponse()
            if response.status != 200:
                raise UsageError(
                    f"{self.name} answered {response.status}: "
                    f"{response.read(300).decode(errors='replace')}"
                )
            yield from read_events(response)
        except (OSError, http.client.HTTPException) as error:
            raise UsageError(
                f"{self.name} cannot be reached or broke off: {error or type(error).__name__}"
            ) from error
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        kind = (
            http.client.HTTPSConnection
            if self._parts.scheme == "https"
            else http.client.HTTPConnection
        )
        return kind(self._parts.hostname or "", self._parts.port, timeout=TIMEOUT_SECONDS)

    def _first_model(self) -> str:
        connection = self._connect()
        try:
            connection.request("GET", f"{self._base}/v1/models")
            listed = json.loads(connection.getresponse().read())
            return str(listed["data"][0]["id"])
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            raise UsageError(
                f"{self.name} does not tell its models at /v1/models: "
                f"{error or type(error).__name__}"
            ) from error
        finally:
            connection.close()


def address(url: str) -> SplitResult:
    """The parts of a server's URL. UsageError when it is none."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or too large
        is_good = False
    if not is_good:
        raise UsageError(
            f"{url} is not the address of a server; it looks like http://127.0.0.1:8000"
        )
    return parts


def request_body(model: str, prompt: Any, params: SamplingParams) -> dict[str, Any]:
    """The JSON of a streamed completion. UsageError for a parameter that would not be sent."""
    plain = SamplingParams()
    changed = {
        name: value
        for name in PARAMETERS
        if (value := getattr(params, name)) != getattr(plain, name)
    }
    names = {name: key for key, name in server_fields().items()}
    for name in changed:
        if name not in names or name in _NOT_COMPARED:
            raise UsageError(
                f"the server arm does not send {name}; leave it out or leave that arm out"
            )
    asked = {name: getattr(params, name) for name in _ALWAYS} | changed
    sent = {names[name]: value for name, value in asked.items() if name not in _OURS}
    sent = {key: list(value) if isinstance(value, tuple) else value for key, value in sent.items()}
    stream = {"include_usage": True, "continuous_usage_stats": True}
    return {
        "model": model,
        "prompt": prompt,
        "stream": True,
        "stream_options": stream,
        "return_token_ids": True,
        **sent,
    }


def read_events(lines: Any) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events (WHATWG's format: data lines, an empty
    line ends an event). UsageError for an event that is none."""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", errors="replace").rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            text, data = "\n".join(data), []
            if text.strip() == "[DONE]":
                return
            yield _object(text)
    if data and "\n".join(data).strip() != "[DONE]":
        yield _object("\n".join(data))


def _object(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise UsageError(f"the server sent an event that is no JSON object: {text[:80]!r}")
    return event


class Counter:
    """Tokens and times of one stream, event by event."""

    def __init__(self, tokenizer: Any = None) -> None:
        self._tokenizer, self._chunks, self._total = tokenizer, list[Chunk](), 0
        self.text, self.token_ids = "", list[int]()
        self._usage: int | None = None
        self._guessed = False

    def add(self, event: Mapping[str, Any], seconds: float) -> None:
        """One event that arrived `seconds` after the request."""
        if event.get("error"):
            raise UsageError(f"the server reported an error: {event['error']}")
        choice = (event.get("choices") or [{}])[0]
        text = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
        self.token_ids += choice.get("token_ids") or ()
        self.text += text
        usage = (event.get("usage") or {}).get("completion_tokens")
        if usage is not None and not event.get("choices"):
            self._usage = int(usage)  # the closing event carries the total and no tokens of its own
            return
        count = self._count(choice, text, usage)
        if count:
            self._chunks.append(Chunk(seconds, count))
            self._total += count

    def _count(self, choice: Mapping[str, Any], text: str, usage: Any) -> int:
        if usage is not None:
            return max(int(usage) - self._total, 0)
        if choice.get("token_ids"):
            return len(choice["token_ids"])
        logprobs = choice.get("logprobs") or {}
        if logprobs.get("tokens"):
            return len(logprobs["tokens"])
        if not text:
            return 0
        self._guessed = True
        return (
            len(self._tokenizer.encode(text, add_special_tokens=False))
            if self._tokenizer is not None
            else 1
        )

    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks. Where counts were guessed from text and the server gave a total, they are
        scaled to it."""
        if (
            self._usage is None
            or not self._guessed
            or self._usage == self._total
            or not self._chunks
        ):
            return tuple(self._chunks)
        shares, given, seen = [], 0, 0
        for chunk in self._chunks:
            seen += chunk.num_tokens
            upto = round(self._usage * seen / self._total)
            shares.append(Chunk(chunk.seconds, upto - given))
            given = upto
        return tuple(shares)
