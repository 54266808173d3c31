"""A server's ids, or one sentence about why they cannot be had."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from draftproof import SamplingParams
from draftproof.audit.engines.endpoint import RETOKENISED, Characters, EndpointEngine, given_ids
from draftproof.errors import UsageError

PARAMS = SamplingParams(max_tokens=3, temperature=0.8)


@contextmanager
def server(answer: Any, status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server whose completions are `answer`; what it was asked is kept."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({"data": [{"id": "m"}]}, 200)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body | {"authorization": self.headers["Authorization"]})
            self.reply(answer, status)

        def reply(self, body: Any, code: int) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    running = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}/v1", asked
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


class Words:
    """A tokenizer of letters that knows no capitals."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) for letter in text.lower()]

    def decode(self, ids: Any) -> str:
        return "".join(chr(i) for i in ids)


def completion(text: str, tokens: int, **more: Any) -> dict[str, Any]:
    return {"choices": [{"text": text, **more}], "usage": {"completion_tokens": tokens}}


def test_ids_come_as_the_server_gives_them_and_the_law_is_asked_for():
    with server(completion("abc", 3, token_ids=[7, 8, 9])) as (url, asked):
        engine = EndpointEngine(url)
        assert engine.sample((1, 2), PARAMS, 5) == (7, 8, 9)
    assert engine.name.startswith("m at 127.0.0.1")
    assert asked[0]["prompt"] == [1, 2] and asked[0]["seed"] == 5 and asked[0]["temperature"] == 0.8
    assert asked[0]["return_token_ids"] is True and "stream" not in asked[0]


@pytest.mark.parametrize(
    ("choice", "answer", "ids"),
    [
        ({"logprobs": {"token_ids": [1, 2]}}, {}, (1, 2)),
        ({"logprobs": {"tokens": ["token_id:3", "token_id:14"]}}, {}, (3, 14)),
        ({}, {"tokens": [4]}, (4,)),
        ({"logprobs": {"tokens": [" the", " cat"]}}, {}, None),
        ({"token_ids": []}, {}, None),
    ],
)
def test_where_ids_may_stand(choice, answer, ids):
    assert given_ids(choice, answer) == ids


def test_text_without_ids_is_tokenised_again_only_where_that_gives_text_and_count_back():
    with server(completion("abc", 3)) as (url, _):
        engine = EndpointEngine(url, tokenizer=Words())
        assert engine.sample((1,), PARAMS, 0) == (97, 98, 99)
        assert engine.ids_from == RETOKENISED
        with pytest.raises(UsageError, match="no tokenizer"):
            EndpointEngine(url).sample((1,), PARAMS, 0)
    with (
        server(completion("abc", 2)) as (url, _),
        pytest.raises(UsageError, match="counts 2 tokens where .* makes 3"),
    ):
        EndpointEngine(url, tokenizer=Words()).sample((1,), PARAMS, 0)
    with (
        server(completion("aBc", 3)) as (url, _),
        pytest.raises(UsageError, match="does not give it back"),
    ):
        EndpointEngine(url, tokenizer=Words()).sample((1,), PARAMS, 0)


def test_a_key_is_sent_where_one_is_given():
    with server(completion("a", 1, token_ids=[1])) as (url, asked):
        EndpointEngine(url, key="open sesame").sample((1,), PARAMS, 0)
        EndpointEngine(url).sample((1,), PARAMS, 0)
    assert [one["authorization"] for one in asked] == ["Bearer open sesame", None]
    with pytest.raises(UsageError, match="no header can carry"):
        EndpointEngine(url, key="\n")


def test_strings_are_sent_and_read_as_strings():
    with server(completion("xy", 1, token_ids=[7])) as (url, asked):
        assert EndpointEngine(url, tokenizer=Characters()).sample((104, 105), PARAMS, 0) == (
            120,
            121,
        )
    assert asked[0]["prompt"] == "hi"


@pytest.mark.parametrize(
    ("answer", "status", "sentence"),
    [
        ({"detail": "no"}, 422, "answered 422 to /v1/completions"),
        (b"<html>", 200, "with no JSON object: <html>"),
        ({"choices": []}, 200, "without a completion"),
    ],
)
def test_an_answer_that_is_none_is_told_in_one_sentence(answer, status, sentence):
    with server(answer, status) as (url, _), pytest.raises(UsageError, match=sentence):
        EndpointEngine(url).sample((1,), PARAMS, 0)


def test_a_server_that_is_down_and_a_model_it_does_not_have():
    with server({}) as (url, _), pytest.raises(UsageError, match="has no model 'other'; it has m"):
        EndpointEngine(url, model="other")
    with pytest.raises(UsageError, match="cannot be reached"):
        EndpointEngine(url)
    with pytest.raises(UsageError, match="not the address"):
        EndpointEngine("ftp://x")
