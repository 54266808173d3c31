"""Chunks of several tokens, counted and timed rightly, against a real server on loopback with a
clock of the test's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from draftproof import SamplingParams
from draftproof.bench.runs import Chunk, Run
from draftproof.bench.server import Counter, ServerArm, read_events
from draftproof.errors import UsageError

PARAMS = SamplingParams(temperature=0, max_tokens=100, seed=3)


class Ticking:
    """A clock that moves `step` seconds at every call but the first."""

    def __init__(self, step: float) -> None:
        self.now, self.step = -step, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def serve() -> Iterator[Any]:
    """Start a server that streams these events; its address, and the list of bodies it was sent."""
    servers = []

    def start(events: list[dict[str, Any]], status: int = 200) -> tuple[str, list[Any]]:
        bodies: list[Any] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, json.dumps({"data": [{"id": "tiny"}]}).encode())

            def do_POST(self) -> None:
                bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                stream = b"".join(
                    b"data: " + json.dumps(event).encode() + b"\n\n" for event in events
                )
                self._send(status, stream + b"data: [DONE]\n\n")

            def _send(self, code: int, data: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/v1", bodies

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def event(tokens: int, text: str = "abcd") -> dict[str, Any]:
    return {"choices": [{"text": text, "token_ids": list(range(tokens))}]}


def test_four_tokens_every_40_ms(serve: Any) -> None:
    """One time stamp a chunk with several tokens in it: 10 ms a token, 100 tokens a second, a peak
    not below the average."""
    url, bodies = serve([event(4)] * 25)
    run = ServerArm(url, clock=Ticking(0.040)).run((1, 2, 3), PARAMS)
    assert run.num_tokens == 100 and len(run.chunks) == 25
    assert run.first_token_seconds == pytest.approx(0.040)
    assert run.seconds_per_token == pytest.approx(0.010)
    assert run.peak_tokens_per_second == pytest.approx(100)
    assert (
        bodies[0]["prompt"] == [1, 2, 3]
        and bodies[0]["model"] == "tiny"
        and bodies[0]["max_tokens"] == 100
    )
    assert bodies[0]["seed"] == 3 and bodies[0]["temperature"] == 0


def test_a_chunk_without_text_still_counts_its_tokens(serve: Any) -> None:
    url, _ = serve([event(2), event(3, text=""), event(1)])
    run = ServerArm(url, clock=Ticking(1.0)).run((1,), PARAMS)
    assert [chunk.num_tokens for chunk in run.chunks] == [2, 3, 1]


def test_the_running_total_is_believed_first(serve: Any) -> None:
    totals = [1, 1, 4, 6]
    events = [{"choices": [{"text": "x"}], "usage": {"completion_tokens": n}} for n in totals]
    url, _ = serve([*events, {"choices": [], "usage": {"completion_tokens": 6}}])
    run = ServerArm(url, clock=Ticking(1.0)).run((1,), PARAMS)
    assert [(c.seconds, c.num_tokens) for c in run.chunks] == [(1.0, 1), (3.0, 3), (4.0, 2)]


def test_counts_guessed_from_text_are_settled_by_the_total() -> None:
    counter = Counter()
    for number in range(4):
        counter.add({"choices": [{"text": "some words"}]}, number + 1.0)
    counter.add({"choices": [], "usage": {"completion_tokens": 10}}, 5.0)
    assert sum(chunk.num_tokens for chunk in counter.chunks()) == 10


def test_logprobs_tell_the_count_too() -> None:
    counter = Counter()
    counter.add({"choices": [{"text": "ab", "logprobs": {"tokens": ["a", "b"]}}]}, 1.0)
    assert counter.chunks() == (Chunk(1.0, 2),)


def test_what_goes_wrong_is_one_sentence(serve: Any) -> None:
    url, _ = serve([], status=500)
    with pytest.raises(UsageError, match="answered 500"):
        ServerArm(url).run((1,), PARAMS)
    with pytest.raises(UsageError, match="sent no token"):
        ServerArm(serve([])[0]).run((1,), PARAMS)
    for address in ("http://", "ftp://host", "http://host:port", "http://host:99999"):
        with pytest.raises(UsageError, match="not the address"):
            ServerArm(address)
    with pytest.raises(UsageError, match="does not tell its models"):
        ServerArm("http://127.0.0.1:9")
    with pytest.raises(UsageError, match="reported an error"):
        Counter().add({"error": "too long"}, 0.0)
    with pytest.raises(UsageError, match="does not send logit_bias"):
        ServerArm(url).run((1,), SamplingParams(logit_bias={3: 1.0}))


def test_a_seed_of_0_is_sent(serve: Any) -> None:
    """The default seed: left out, the first prompt of every bench was drawn from a seed of the
    server's own."""
    url, bodies = serve([event(1)])
    ServerArm(url).run((1,), SamplingParams(temperature=1.0, seed=0))
    assert bodies[0]["seed"] == 0 and "min_tokens" not in bodies[0] and "stop" not in bodies[0]
    ServerArm(url).run((1,), SamplingParams(temperature=1.0, stop=("x",), min_tokens=2))
    assert bodies[1]["stop"] == ["x"] and bodies[1]["min_tokens"] == 2 and "seed" not in bodies[1]


def test_a_stream_that_is_no_json_is_told() -> None:
    for line in (b"data: <html>\n", b"data: [1]\n", b"data: \xff\n"):
        with pytest.raises(UsageError, match="an event that is no JSON object"):
            list(read_events([line, b"\n"]))
    counter = Counter()
    counter.add({"error": None, "choices": [{"text": "a", "token_ids": [1]}]}, 1.0)
    assert counter.token_ids == [1]


def test_events_may_end_without_an_empty_line_and_span_lines() -> None:
    lines = [b": a comment\n", b'data: {"a":\n', b"data: 1}\n", b"\n", b'data: {"b": 2}\n']
    assert list(read_events(lines)) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("gaps", [(0.1, 0.4, 0.1), (0.02, 0.3, 0.3), (1.0, 0.001, 5.0)])
def test_the_peak_is_never_below_the_average(gaps: tuple[float, ...]) -> None:
    now, chunks = 0.0, []
    for number, gap in enumerate(gaps):
        now += gap
        chunks.append(Chunk(now, number + 1))
    run = Run((), "", now, tuple(chunks))
    assert run.peak_tokens_per_second is not None and run.seconds_per_token is not None
    assert run.peak_tokens_per_second >= 1 / run.seconds_per_token - 1e-9


def test_a_chunk_without_tokens_is_not_the_first_token() -> None:
    """Servers send a first event that holds the role alone: it comes early and brings nothing."""
    run = Run((1, 2, 3), "abc", 1.0, (Chunk(0.1, 0), Chunk(0.4, 1), Chunk(1.0, 2)))
    assert run.first_token_seconds == 0.4
    assert run.seconds_per_token == pytest.approx(0.3)
