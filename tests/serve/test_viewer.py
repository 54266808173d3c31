"""`/viewer`: a page anybody may load, which holds nothing, and asks what the page's own stream
gives."""

from __future__ import annotations

import json
from collections.abc import Callable

from starlette.testclient import TestClient


def test_the_page_needs_no_key_and_cannot_be_framed(serve: Callable[..., TestClient]) -> None:
    answer = serve(api_key="k3y-of-a-server").get("/viewer")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert answer.headers["x-frame-options"] == "DENY" and "k3y" not in answer.text
    assert "connect-src 'self'" in answer.text


def test_what_the_page_asks_for_comes_with_rounds_and_probabilities(
    serve: Callable[..., TestClient],
) -> None:
    asked = {"messages": [{"role": "user", "content": "a"}], "stream": True, "max_tokens": 4}
    more = {"return_rounds": True, "logprobs": True, "top_logprobs": 5, "temperature": 0}
    body = asked | more | {"stream_options": {"include_usage": True}}
    lines = serve().post("/v1/chat/completions", json=body).text.split("\n\n")
    parts = [json.loads(line[6:]) for line in lines if line and not line.endswith("[DONE]")]
    choices = [choice for part in parts for choice in part["choices"] if choice.get("rounds")]
    assert choices
    for choice in choices:
        size = sum(len(shown["tokens"]) for shown in choice["rounds"])
        assert len(choice["logprobs"]["content"]) == size
        assert all(len(token["top_logprobs"]) == 5 for token in choice["logprobs"]["content"])
