"""Requests that no client should send: bytes, and at which point the connection is left.

Every kind is a function of a random generator, so a seed gives the same requests again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

FIELDS = (
    *("prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "n", "stop", "logit_bias"),
    *("logprobs", "stream", "stream_options", "echo", "prediction", "speculative_config"),
    *("response_format", "structured_outputs", "prompt_logprobs", "min_tokens", "user", "model"),
    *("bad_words", "allowed_token_ids", "stop_token_ids", "best_of", "suffix", "temprature", ""),
)
JUNK: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2**31, 2**63, -(2**70), 10**300, 1e308, -1e308, 1.5, "", "a"),
    *("\x00", "\u202e", "💥" * 50, [], {}, [[]], [None], {"a": None}, ["a", 1], [1] * 300),
    *({"type": "json_schema"}, {"regex": "(a+)+$"}, {"num_speculative_tokens": 9}, {"1": 1}),
    *({"method": "lookahead"}, {"grammar": "start: start"}, {"json": {"$ref": "#"}}, "a" * 9000),
)


@dataclass(frozen=True)
class Hostile:
    """data: the bytes sent. leaves: seconds after which the client is gone; None reads the whole
    answer. reads: bytes that it reads before it leaves. drip: sent a few bytes at a time."""

    kind: str
    data: bytes
    leaves: float | None = None
    reads: int = 0
    drip: bool = False


def post(body: bytes, path: str = "/v1/completions", length: int | None = None) -> bytes:
    """A request whose answer ends the connection."""
    size = len(body) if length is None else length
    head = (
        f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}"
    )
    return f"{head}\r\n\r\n".encode() + body


def valid(random: Random, **more: Any) -> dict[str, Any]:
    said = "".join(random.choice("abc \n") for _ in range(random.randint(1, 60)))
    return {
        "prompt": said,
        "max_tokens": random.randint(1, 12),
        "seed": random.randint(0, 9),
    } | more


def cut_json(random: Random) -> Hostile:
    body = bytearray(json.dumps(valid(random, stop=["x"], n=2)).encode())
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(body))
        body[place : place + random.randint(0, 3)] = random.randbytes(random.randint(0, 3))
    return Hostile("malformed JSON", post(bytes(body)))


def wrong_types(random: Random) -> Hostile:
    body = valid(random) | {random.choice(FIELDS): random.choice(JUNK) for _ in range(2)}
    if random.random() < 0.3:
        body["messages"] = random.choice([body.pop("prompt"), [random.choice(JUNK)]])
        return Hostile("wrong types", post(json.dumps(body).encode(), "/v1/chat/completions"))
    return Hostile("wrong types", post(json.dumps(body).encode()))


def huge_numbers(random: Random) -> Hostile:
    number = random.choice(
        ["9" * random.randint(20, 6000), "1e999", "-1e999", "NaN", "0." + "3" * 999]
    )
    name = random.choice(FIELDS[1:8])
    return Hostile("huge numbers", post(f'{{"prompt": "a", "{name}": {number}}}'.encode()))


def deep_nesting(random: Random) -> Hostile:
    depth, name = random.choice([200, 900, 5000, 100_000]), random.choice(FIELDS)
    opened, closed = random.choice([("[", "]"), ('{"a":', "}")])
    body = f'{{"prompt": "a", "{name}x": {opened * depth}1{closed * depth}}}'
    return Hostile("deep nesting", post(body.replace('x":', '":').encode()))


def bad_text(random: Random) -> Hostile:
    text = random.choice(
        [b"\xff\xfe", b"\xc0\x80", b"\\ud800", b"\xed\xa0\x80", random.randbytes(40)]
    )
    return Hostile("bad UTF-8", post(b'{"prompt": "' + text + b'", "max_tokens": 2}'))


def aborted_upload(random: Random) -> Hostile:
    body = json.dumps(valid(random, prompt="a" * random.randint(1, 50_000))).encode()
    return Hostile(
        "aborted upload", post(body[: random.randrange(len(body))], length=len(body)), 0.02
    )


def gone_in_headers(random: Random) -> Hostile:
    data = post(json.dumps(valid(random)).encode())
    return Hostile("gone in the headers", data[: random.randint(0, 90)], random.choice([0, 0.05]))


def gone_before_the_answer(random: Random) -> Hostile:
    body = valid(random, max_tokens=200, ignore_eos=True, n=random.randint(1, 3))
    return Hostile("gone before the answer", post(json.dumps(body).encode()), random.random() / 10)


def gone_in_the_stream(random: Random) -> Hostile:
    body = valid(random, max_tokens=300, ignore_eos=True, stream=True)
    data = post(json.dumps(body).encode())
    return Hostile("gone in the stream", data, random.random() / 5, reads=random.randint(1, 2000))


def slow_reader(random: Random) -> Hostile:
    body = valid(random, max_tokens=300, ignore_eos=True, stream=True, logprobs=20)
    return Hostile("slow reader", post(json.dumps(body).encode()), 1.0, reads=64)


def slow_sender(random: Random) -> Hostile:
    return Hostile("slow sender", post(json.dumps(valid(random)).encode()), drip=True)


def header_flood(random: Random) -> Hostile:
    line = b"X-%d: " % random.randint(0, 9) + b"y" * random.choice([1, 900]) + b"\r\n"
    many = line * (200_000 // len(line))
    return Hostile("header flood", b"GET /health HTTP/1.1\r\nHost: a\r\n" + many + b"\r\n")


def no_http(random: Random) -> Hostile:
    body = json.dumps(valid(random)).encode()
    data = random.choice(
        [
            random.randbytes(200) + b"\r\n\r\n",
            b"\x16\x03\x01" + random.randbytes(99),
            b"GET / HTTP/9.9\r\n\r\n",
            post(body).replace(b"Content-Length: ", b"Content-Length: -"),
            post(body).replace(
                b"Content-Length:", b"Transfer-Encoding: chunked\r\nContent-Length:"
            ),
            post(body, random.choice(["/", "/v1/../etc", "/v1/models/" + "a" * 5000, "/metrics"])),
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n",
        ]
    )
    return Hostile("no HTTP, or not quite", data, 0.5)


def too_long(random: Random) -> Hostile:
    size = random.choice([10**9, 2**80, 9 * 2**20])
    return Hostile("too long", post(b'{"prompt": "' + b"a" * 1000, length=size), 1.0)


KINDS: tuple[Callable[[Random], Hostile], ...] = (
    *(cut_json, wrong_types, wrong_types, huge_numbers, deep_nesting, bad_text, aborted_upload),
    *(gone_in_headers, gone_before_the_answer, gone_in_the_stream, slow_reader, slow_sender),
    *(header_flood, no_http, too_long),
)


def hostile(random: Random) -> Hostile:
    """One of them."""
    return random.choice(KINDS)(random)
