"""An OpenAI-compatible server, of which only `/v1/completions` is used.

Token ids are taken from what the server says: `token_ids` (vLLM's, on `return_token_ids`), ids
among the log-probabilities (`token_ids`, or tokens spelled `token_id:N`, as vLLM's
`return_tokens_as_token_ids` has them), `tokens` of numbers (llama.cpp's); else the text is put
through the tokenizer, and refused where that does not give back the text and the count."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from draftproof.audit.black_box.samples import Ids
from draftproof.bench.server import address, request_body
from draftproof.core.params import SamplingParams
from draftproof.errors import UsageError

TIMEOUT_SECONDS = 600
CHECKED = "token ids from the server"
RETOKENISED = (
    "token ids by tokenising the server's text again: a text that tokens can spell in "
    "several ways may be misread"
)


class Characters:
    """A tokenizer that needs no model: a token is a Unicode character. For servers whose texts are
    compared as strings."""

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


class EndpointEngine:
    """url: the server's base, with or without /v1. model: its name there (None: the first it
    lists). tokenizer: for servers that give text only; `Characters`: prompts and texts are strings,
    whatever the server says of ids. key: what the server asks for; None sends none.

    ids_from: how ids were had, once a text came."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        tokenizer: Any = None,
        key: str | None = None,
    ) -> None:
        if key is not None and not (key.isascii() and key.isprintable() and key.strip()):
            raise UsageError("the API key is empty or holds characters that no header can carry")
        self._parts = address(url)
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._base = self._parts.path.rstrip("/").removesuffix("/v1")
        self.tokenizer = tokenizer
        self.ids_from: str | None = None
        listed = self._asked("GET", "/v1/models")
        names = [one.get("id") for one in listed.get("data") or () if isinstance(one, dict)]
        if model is None and not names:
            raise UsageError(
                f"the server at {url} lists no model at /v1/models; name one with --served-model"
            )
        if model is not None and names and model not in names:
            raise UsageError(
                f"the server at {url} has no model {model!r}; it has {', '.join(map(str, names))}"
            )
        self.model = model or str(names[0])
        self.name = f"{self.model} at {self._parts.netloc}"

    def sample(self, prompt: Ids, params: SamplingParams, seed: int) -> Ids:
        """UsageError when the server cannot be reached, refuses, or gives text whose ids cannot be
        had."""
        as_text = isinstance(self.tokenizer, Characters)
        asked = self.tokenizer.decode(prompt) if as_text else list(prompt)
        body = request_body(self.model, asked, replace(params, seed=seed))
        for name in ("stream", "stream_options"):
            body.pop(name)
        answer = self._asked("POST", "/v1/completions", body | {"logprobs": 1})
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise UsageError(
                f"{self.name} answered without a completion: {json.dumps(answer)[:120]}"
            )
        text = str(choices[0].get("text") or "")
        if as_text:
            return tuple(self.tokenizer.encode(text))
        ids = given_ids(choices[0], answer)
        if ids is not None:
            self.ids_from = CHECKED
            return ids
        self.ids_from = RETOKENISED
        return self._tokenised(text, (answer.get("usage") or {}).get("completion_tokens"))

    def _tokenised(self, text: str, count: Any) -> Ids:
        if self.tokenizer is None:
            raise UsageError(
                f"{self.name} sends text without token ids, and there is no tokenizer to "
                "have them from"
            )
        ids = tuple(int(token) for token in self.tokenizer.encode(text, add_special_tokens=False))
        if self.tokenizer.decode(list(ids)) != text:
            raise UsageError(
                f"{self.name} sends text without token ids, and the target's tokenizer "
                "does not give it back"
            )
        if count is not None and len(ids) != int(count):
            raise UsageError(
                f"{self.name} sends text without token ids: it counts {count} tokens "
                "where the target's tokenizer makes "
                f"{len(ids)}, so the ids cannot be had"
            )
        return ids

    def _asked(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The JSON object that came back."""
        kind = (
            http.client.HTTPSConnection
            if self._parts.scheme == "https"
            else http.client.HTTPConnection
        )
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=TIMEOUT_SECONDS)
        where = f"the server at {self._parts.netloc}"
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, self._base + path, sent, self._headers)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise UsageError(
                f"{where} cannot be reached or broke off: {error or type(error).__name__}"
            ) from error
        finally:
            connection.close()
        if response.status != 200:
            raise UsageError(
                f"{where} answered {response.status} to {path}: "
                f"{data[:300].decode(errors='replace')}"
            )
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise UsageError(
                f"{where} answered {path} with no JSON object: {data[:80].decode(errors='replace')}"
            )
        return answer


def given_ids(choice: Mapping[str, Any], answer: Mapping[str, Any]) -> Ids | None:
    """The ids that a completion carries, or None."""
    logprobs = choice.get("logprobs") or {}
    for found in (
        choice.get("token_ids"),
        logprobs.get("token_ids"),
        choice.get("tokens"),
        answer.get("tokens"),
    ):
        if isinstance(found, list) and found and all(isinstance(token, int) for token in found):
            return tuple(found)
    return _spelled(logprobs.get("tokens"))


def _spelled(tokens: Sequence[Any] | None) -> Ids | None:
    """Ids from tokens that are spelled `token_id:N`."""
    if not tokens or not all(
        isinstance(token, str) and token.startswith("token_id:") for token in tokens
    ):
        return None
    numbers = [token.removeprefix("token_id:") for token in tokens]
    return (
        tuple(int(number) for number in numbers)
        if all(number.isdigit() for number in numbers)
        else None
    )
