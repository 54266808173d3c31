"""The queue, the clocks, and clients that go away or do not read; and what is counted."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from draftproof.serve.streaming import EventStream
from serving import TEXT, make_decoder

Start = Callable[..., TestClient]
PATH = "/v1/completions"


def test_a_full_queue_says_when_to_come_again(serve: Start) -> None:
    """Two texts run, one waits, the fourth is refused; afterwards all is as before."""
    decoder, begun, go_on = make_decoder(), threading.Event(), threading.Event()
    extend = decoder.target.extend_many

    def held(steps: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return extend(steps)

    decoder.target.extend_many = held  # type: ignore[method-assign]
    client = serve(decoder, max_num_seqs=2, max_queue=1)
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(
            client.post(PATH, json={"prompt": TEXT, "n": 3, "max_tokens": 2}).status_code
        )

    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(30)
    refused = client.post(PATH, json={"prompt": TEXT})
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "queue_full"
    go_on.set()
    asking.join(30)
    assert statuses == [200] and client.post(PATH, json={"prompt": TEXT}).status_code == 200


@pytest.mark.parametrize("streams", [False, True])
def test_a_request_that_takes_too_long_ends(serve: Start, streams: bool) -> None:
    """It is told so, and its texts leave."""
    client = serve(make_decoder(max_length=4096), request_timeout=0.2)
    response = client.post(
        PATH, json={"prompt": TEXT, "max_tokens": 4000, "ignore_eos": True, "stream": streams}
    )
    assert response.status_code == (200 if streams else 504)
    assert '"code":"timeout"' in response.text
    service: Any = client.app.state.service  # type: ignore[attr-defined]
    for _ in range(300):
        if service.worker.scheduler.num_running == 0:
            return
        threading.Event().wait(0.05)
    raise AssertionError("it still runs")


async def deliver(stream: EventStream, send: Any, receive: Any) -> None:
    await asyncio.wait_for(stream({"type": "http"}, receive, send), 30)


def endless(sent: list[int]) -> Callable[[], AsyncIterator[dict[str, Any]]]:
    async def events() -> AsyncIterator[dict[str, Any]]:
        for number in range(100_000):
            sent.append(number)
            yield {"number": number}

    return events


def test_a_client_that_goes_while_a_part_is_sent_is_noticed() -> None:
    """Both happen at one moment: the cancellation must not be lost with the part that was just
    sent."""
    sent, ended = list[int](), list[str]()

    async def play() -> None:
        gone = asyncio.Event()

        async def send(message: Any) -> None:
            if len(sent) == 3:
                gone.set()
            await asyncio.sleep(0)

        async def receive() -> Any:
            await gone.wait()
            return {"type": "http.disconnect"}

        await deliver(EventStream(endless(sent)(), ended.append, 60), send, receive)

    asyncio.run(play())
    assert ended == ["client gone"] and len(sent) < 10


def test_a_client_that_does_not_read_is_cut_off() -> None:
    sent, ended = list[int](), list[str]()

    async def play() -> None:
        async def send(message: Any) -> None:
            if len(sent) == 5:
                await asyncio.Event().wait()

        async def receive() -> Any:
            await asyncio.Event().wait()

        await deliver(EventStream(endless(sent)(), ended.append, 0.05), send, receive)

    asyncio.run(play())
    assert ended == ["client gone"] and len(sent) == 5


def test_what_is_counted(serve: Start) -> None:
    """vLLM's names, and figures that agree with the answers."""
    client = serve(make_decoder("ngram", num_speculative_tokens=4))
    body = {
        "prompt": "a b a b a b a b a b a b a b a b a b",
        "max_tokens": 12,
        "logit_bias": {"65": 100},
        "temperature": 0,
    }
    answers = [client.post(PATH, json=body).json() for _ in range(2)]
    client.post(PATH, json={"prompt": 5})
    found = {}
    for line in client.get("/metrics").text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[
                re.sub(r'(engine="0"|model_name="tiny"),?', "", name)
                .replace(",}", "}")
                .replace("{}", "")
            ] = float(value)
    prompt = answers[0]["usage"]["prompt_tokens"]
    assert (
        found["vllm:prompt_tokens_total"] == 2 * prompt
        and found["vllm:generation_tokens_total"] == 24
    )
    drafts = found["vllm:spec_decode_num_drafts_total"]
    drafted = found["vllm:spec_decode_num_draft_tokens_total"]
    accepted = found["vllm:spec_decode_num_accepted_tokens_total"]
    by_place = [
        found[name]
        for name in sorted(found)
        if name.startswith("vllm:spec_decode_num_accepted_tokens_per_pos_total")
    ]
    assert 0 < drafts <= drafted and 0 < accepted <= drafted and sum(by_place) == accepted
    assert by_place == sorted(by_place, reverse=True) and len(by_place) <= 4
    assert found["vllm:prefix_cache_queries_total"] == 2 * prompt
    assert (
        found["vllm:prefix_cache_hits_total"]
        == answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
        == prompt - 1
    )
    for name in (
        "time_to_first_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
    ):
        assert found[f"vllm:{name}_count"] == 2 and found[f"vllm:{name}_sum"] >= 0
    assert found["vllm:num_requests_running"] == found["vllm:num_requests_waiting"] == 0
    assert 0 < found["vllm:kv_cache_usage_perc"] < 1
    assert found['vllm:request_success_total{finished_reason="length"}'] == 2
    assert found['draftproof:http_responses_total{endpoint="/v1/completions",status="400"}'] == 1
