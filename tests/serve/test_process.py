"""The command as a process of its own: OpenAI's client, our own bench, hostile connections, and an
orderly end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import openai
import pytest

from benchmark_scripts import script
from draftproof import SamplingParams
from draftproof.bench.server import ServerArm
from serving import TEXT, make_decoder, tokenizer

ASKED: Any = [{"role": "user", "content": TEXT}]
COMMAND = (
    sys.executable,
    "-m",
    "draftproof",
    "serve",
    "--port",
    "0",
    "--dtype",
    "float32",
    "--served-model-name",
    "tiny",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("model")
    make_decoder(max_length=4096).target.module.save_pretrained(found)  # type: ignore[attr-defined]
    tokenizer().save_pretrained(found)
    return found


class Process:
    """A server on a free port."""

    def __init__(self, folder: Path, *flags: str) -> None:
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        command = (*COMMAND, "--target", str(folder), *flags)
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        self.lines: list[str] = []
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(ready,), daemon=True)
        self._reader.start()
        assert ready.wait(120), self.lines
        found = next(
            match for line in self.lines if (match := re.search(r"http://127\.0\.0\.1:(\d+)", line))
        )
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        while True:  # the address is told before uvicorn takes it over
            try:
                self.connect().close()
                break
            except ConnectionError:
                time.sleep(0.05)

    def _read(self, ready: threading.Event) -> None:
        for line in self.process.stderr or ():
            self.lines.append(line)
            if line.startswith("serving "):
                ready.set()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self._reader.join(30)
        assert self.process.stderr is not None
        self.process.stderr.close()


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Process]:
    process = Process(folder, "--max-num-seqs", "4", "--method", "suffix")
    yield process
    process.close()


def test_it_says_how_it_runs(server: Process) -> None:
    assert "(torch, float32 on cpu, method suffix)" in "".join(server.lines)


def test_openai_s_client(server: Process) -> None:
    """Every field it knows of, whole, streamed, and from many tasks at a time: the text is the
    library's."""
    decoder = make_decoder("suffix", max_length=4096)
    wanted = decoder.generate(
        ASKED,
        SamplingParams(seed=1, max_tokens=20, temperature=0.8, top_p=0.9, stop=["zz"], logprobs=2),
    )
    chat: dict[str, Any] = dict(
        model="tiny", messages=ASKED, seed=1, max_completion_tokens=20, temperature=0.8, top_p=0.9
    )
    chat |= dict(
        stop=["zz"],
        logprobs=True,
        top_logprobs=2,
        n=1,
        presence_penalty=0,
        frequency_penalty=0,
        user="ada",
    )
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        answer = client.chat.completions.create(
            **chat, extra_body={"top_k": 0, "return_token_ids": True}
        )
        assert (
            answer.choices[0].message.content == wanted.text
            and answer.choices[0].finish_reason == "length"
        )
        assert (
            answer.choices[0].logprobs is not None
            and answer.usage is not None
            and answer.usage.completion_tokens == 20
        )
        predicted = client.chat.completions.create(
            **chat, prediction={"type": "content", "content": wanted.text}
        )
        assert predicted.choices[0].message.content == wanted.text and predicted.usage is not None
        details = predicted.usage.completion_tokens_details
        assert details is not None and (details.accepted_prediction_tokens or 0) > 5
        with client.chat.completions.create(
            **chat, stream=True, stream_options={"include_usage": True}
        ) as stream:
            chunks = list(stream)
        assert (
            "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            == wanted.text
        )
        assert (
            chunks[-1].usage is not None
            and chunks[-1].usage.total_tokens == answer.usage.total_tokens
        )
        completion = client.completions.create(
            model="tiny", prompt=[TEXT, "def"], echo=True, logprobs=1, max_tokens=4, n=2
        )
        assert [choice.index for choice in completion.choices] == [0, 1, 2, 3]
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(**chat | {"top_p": 5})
        assert refused.value.param == "top_p"
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="other", prompt="a")


def test_many_at_a_time_get_what_each_gets_alone(server: Process) -> None:
    decoder = make_decoder("suffix", max_length=4096)

    async def one(client: openai.AsyncOpenAI, seed: int) -> str:
        chat: Any = dict(
            model="tiny", messages=ASKED, seed=seed, max_tokens=8 + seed, temperature=1
        )
        if seed % 2:
            return (await client.chat.completions.create(**chat)).choices[0].message.content or ""
        parts = [part async for part in await client.chat.completions.create(**chat, stream=True)]
        return "".join(part.choices[0].delta.content or "" for part in parts)

    async def every() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            return await asyncio.gather(*(one(client, seed) for seed in range(12)))

    alone = [
        decoder.generate(ASKED, SamplingParams(seed=seed, max_tokens=8 + seed)).text
        for seed in range(12)
    ]
    assert asyncio.run(every()) == alone


def test_our_own_bench_counts_its_tokens(server: Process) -> None:
    ids = tuple(tokenizer().encode(TEXT))
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    run = ServerArm(server.url, tokenizer=tokenizer()).run(ids, params)
    wanted = make_decoder(max_length=4096).generate(ids, params)
    assert run.token_ids == wanted.token_ids and sum(chunk.num_tokens for chunk in run.chunks) == 12


def post(body: bytes, kind: str = "application/json", length: int | None = None) -> bytes:
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: {kind}\r\n"
    )
    return (
        f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body
    )


def say(server: Process, data: bytes) -> bytes:
    """What the server answers to these bytes."""
    with server.connect() as connection:
        connection.sendall(data)
        return everything(connection)


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


HOSTILE = {
    "no JSON": (post(b"{"), 400),
    "no object": (post(b"[1]"), 400),
    "empty": (post(b""), 400),
    "bad UTF-8": (post(b'{"prompt": "\xff\xfe"}'), 400),
    "half a character": (post(b'{"prompt": "\\ud800"}'), 400),
    "not a number": (post(b'{"prompt": "a", "temperature": NaN}'), 400),
    "infinity": (post(b'{"prompt": "a", "temperature": 1e999}'), 400),
    "huge number": (post(b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}"), 400),
    "large number": (post(b'{"prompt": "a", "top_k": ' + b"9" * 400 + b"}"), 200),
    "deep nesting": (post(b'{"prompt": ' + b"[" * 200_000), 400),
    "deep value": (
        post(b'{"prompt": "a", "response_format": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}"),
        400,
    ),
    "a key twice": (post(b'{"prompt": "a", "prompt": "b"}'), 400),
    "many faults": (post(b'{"prompt": [' + b"null," * 200_000 + b"null]}"), 400),
    "many prompts": (post(b'{"prompt": [' + b'"a",' * 5000 + b'"a"]}'), 400),
    "another type": (post(b'{"prompt": "a"}', "text/plain"), 415),
    "too long": (post(b"{}", length=10**9), 413),
    "no HTTP": (b"\x00\x01\x02\r\n\r\n", 400),
    "headers without end": (
        b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200_000 + b"\r\n",
        400,
    ),
    "a null character": (post(b'{"prompt": "\\u0000", "max_tokens": 1}'), 200),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_requests_are_answered(server: Process, name: str) -> None:
    data, status = HOSTILE[name]
    try:
        answer = say(server, data)
    except ConnectionError:  # closed before it had read everything
        assert name == "headers without end"
        return
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:300]
    if status != 200 and b"application/json" in answer:
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


@needs_proc
def test_hostile_requests_at_random(server: Process) -> None:
    """A short run of `benchmarks/serve_hostile.py`, drawn from a seed: the questions between them
    are answered as they are alone."""
    hostile, random = script("serve_hostile"), Random(5)

    async def storm() -> Any:
        target = hostile.Target(server.port, random, questions=6)
        await target.learn()
        await hostile.storm(target, 120, random, server.process.pid)
        return target.tally

    tally = asyncio.run(storm())
    assert not tally.faults and tally.good > 3 and sum(tally.answers.values()) == 120
    assert not any("Traceback" in line for line in server.lines)


def running(server: Process) -> int:
    text = say(server, b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").decode()
    values = re.findall(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)$", text, re.MULTILINE)
    assert len(values) == 2
    return int(sum(map(float, values)))


def wait_for(server: Process, count: int) -> None:
    """Until so many texts run or wait."""
    for _ in range(300):
        if running(server) == count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{running(server)} texts, not {count}")


def test_who_goes_away_frees_everything(server: Process) -> None:
    """Before its body is whole, while it waits, in the middle of a stream and of an answer that is
    not streamed."""
    with server.connect() as connection:
        connection.sendall(post(b'{"prompt"', length=100))
    long = {"prompt": TEXT, "max_tokens": 3900, "ignore_eos": True, "n": 3}
    streamed = [server.connect() for _ in range(3)]
    for number, connection in enumerate(streamed):
        connection.sendall(post(json.dumps(long | {"stream": number < 2}).encode()))
    wait_for(server, 9)
    assert streamed[0].recv(4096).startswith(b"HTTP/1.1 200")
    for connection in streamed:
        connection.close()
    wait_for(server, 0)


def test_a_slow_reader_keeps_nobody_waiting(server: Process) -> None:
    slow = server.connect()
    slow.sendall(
        post(
            json.dumps(
                {
                    "prompt": TEXT,
                    "max_tokens": 300,
                    "ignore_eos": True,
                    "stream": True,
                    "logprobs": 20,
                }
            ).encode()
        )
    )
    assert b"HTTP/1.1 200" in say(server, post(b'{"prompt": "a", "max_tokens": 4}'))
    slow.close()
    wait_for(server, 0)


def test_the_log_has_a_line_a_request_and_no_words(server: Process) -> None:
    say(
        server,
        post(
            json.dumps(
                {"prompt": TEXT, "max_tokens": 4, "user": "ada", "request_id": "r-1"}
            ).encode()
        ),
    )
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    line = next(line for line in lines if line.get("request_id") == "r-1")
    assert (line["message"], line["user"], line["completion_tokens"], line["method"]) == (
        "done",
        "ada",
        4,
        "suffix",
    )
    assert not any("quick brown" in text for text in server.lines) and not any(
        "Traceback" in text for text in server.lines
    )


def test_sigterm_finishes_what_runs_and_refuses_what_comes(server: Process) -> None:
    """The last test of this server. A stream that has begun and a request that waits end whole;
    then it exits with 0."""
    long = {"prompt": TEXT, "max_tokens": 400, "ignore_eos": True, "temperature": 0}
    begun, whole = server.connect(), server.connect()
    begun.sendall(post(json.dumps(long | {"stream": True}).encode()))
    whole.sendall(post(json.dumps(long | {"n": 1}).encode()))
    assert begun.recv(64).startswith(b"HTTP/1.1 200")
    wait_for(server, 2)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    with pytest.raises(OSError):
        server.connect().close()
    ends = []
    for connection in (begun, whole):
        ends.append(everything(connection))
        connection.close()
    assert ends[0].rstrip().endswith(b"0") and b"[DONE]" in ends[0]
    assert b'"finish_reason":"length"' in ends[1]
    assert server.process.wait(60) == 0


def test_wrong_flags_are_one_sentence() -> None:
    """Before a model is loaded: an address that is taken, a parser there is not."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = (
            ("--port", port),
            ("--tool-call-parser", "guess"),
            ("--request-timeout", "0"),
            ("--host", "no.such.host.invalid"),
        )
        for flag, value in cases:
            command = [
                sys.executable,
                "-m",
                "draftproof",
                "serve",
                "--target",
                str(Path.cwd()),
                flag,
                value,
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert (
                done.returncode == 2 and value in done.stderr and len(done.stderr.splitlines()) == 1
            ), done.stderr
