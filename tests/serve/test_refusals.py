"""What cannot be honoured is refused before any work, in OpenAI's shape, naming the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from serving import TEXT, make_decoder

Start = Callable[..., TestClient]
MESSAGES = [{"role": "user", "content": TEXT}]

SHARED: list[tuple[str, Any]] = [
    ("temperature", -1),
    ("temperature", "hot"),
    ("temperature", True),
    ("top_p", 0),
    ("top_k", -2),
    ("min_p", 2),
    ("repetition_penalty", 0),
    ("presence_penalty", 3),
    ("frequency_penalty", -2.5),
    ("logit_bias", {"first": 1}),
    ("logit_bias", {"65": 101}),
    ("logit_bias", {"65": "1"}),
    ("logit_bias", {"999999": 1}),
    ("bad_words", [1]),
    ("allowed_token_ids", [10**12]),
    ("max_tokens", 0),
    ("max_tokens", 10**9),
    ("max_tokens", 1.5),
    ("min_tokens", 17),
    ("stop", ""),
    ("stop", ["a"] * 1000),
    ("stop_token_ids", ["a"]),
    ("seed", 2**70),
    ("n", 0),
    ("n", 10**30),
    ("best_of", 3),
    ("prompt_logprobs", 21),
    ("response_format.type", {"type": "xml"}),
    ("response_format.json_schema", {"type": "json_schema"}),
    (
        "response_format.json_schema.name",
        {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
    ),
    (
        "response_format.json_schema.schema",
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}},
    ),
    (
        "response_format.json_schema.strict",
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": "yes"}},
    ),
    ("structured_outputs", {"regex": "("}),
    ("structured_outputs", {"regex": "a", "choice": ["b"]}),
    ("structured_outputs", {"xml": "a"}),
    ("prediction.content", {"type": "content"}),
    ("prediction.content", {"type": "content", "content": []}),
    ("prediction", 5),
    ("stream_options", {"include_usage": True}),
    ("return_rounds", 1),
    ("speculative_config", {"method": "draft_model", "model": "/etc"}),
    ("speculative_config", {"method": "retrieval", "store": "/etc/passwd"}),
    ("speculative_config", {"method": "auto"}),
    ("speculative_config", {"num_speculative_tokens": 10**9}),
    ("speculative_config", {"num_speculative_tokens": True}),
    ("speculative_config", {"method": "ngram", "prompt_lookup_max": 0}),
    ("speculative_config", {"method": "suffix", "suffix_decoding_max_cached_requests": 5}),
    ("guided_json", {}),
    ("use_beam_search", True),
    ("logits_processors", ["os.system"]),
    ("temprature", 1),
]
CHAT: list[tuple[str, Any]] = [
    ("messages", []),
    ("messages", "hello"),
    ("messages.0.role", [{"role": "robot", "content": "a"}]),
    (
        "messages.0.content.1.type",
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                ],
            }
        ],
    ),
    ("messages.0.name", [{"role": "user", "content": "a", "name": "Ada"}]),
    ("messages", [{"role": "user"}]),
    ("top_logprobs", 3),
    ("tools", []),
    ("tool_choice", "required"),
    ("chat_template_kwargs", {"enable_thinking": False}),
    ("reasoning_effort", "high"),
    ("parallel_tool_calls", False),
    ("functions", []),
    ("modalities", ["audio"]),
    ("store", True),
]
COMPLETION: list[tuple[str, Any]] = [
    ("prompt", []),
    ("prompt", [[]]),
    ("prompt", ""),
    ("prompt", [1, "a"]),
    ("prompt", [10**9]),
    ("prompt", [-1]),
    ("logprobs", 21),
    ("suffix", "x"),
    ("messages", MESSAGES),
]


def refused(client: TestClient, path: str, body: dict[str, Any], param: str) -> None:
    response = client.post(path, json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (
        set(error) == {"message", "type", "param", "code"}
        and error["type"] == "invalid_request_error"
    )
    assert error["param"] == param, error
    assert 10 < len(error["message"]) < 400 and "\n" not in error["message"]


def test_every_wrong_value_is_named(serve: Start) -> None:
    """All cases on one server, which is asked afterwards for a text."""
    client = serve()
    for field, value in SHARED + CHAT:
        body = {"messages": MESSAGES, "max_tokens": 16, field.partition(".")[0]: value}
        refused(client, "/v1/chat/completions", body, field)
    for field, value in SHARED + COMPLETION:
        asked = {"prompt": TEXT, field.partition(".")[0]: value}
        refused(client, "/v1/completions", asked, field)
    assert client.post("/v1/completions", json={"prompt": TEXT}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {"use_beam_search": False, "length_penalty": 1.0, "suffix": None, "priority": 0},
        {"best_of": 2, "n": 2},
        {
            "response_format": {"type": "text"},
            "user": "ada",
            "logit_bias": None,
            "stop": None,
            "seed": None,
        },
    ],
)
def test_what_changes_nothing_is_taken(serve: Start, body: dict[str, Any]) -> None:
    """Null is what was left out, and some clients send fields of other servers at their
    defaults."""
    assert serve().post("/v1/completions", json={"prompt": TEXT} | body).status_code == 200


def test_prompts_that_do_not_fit(serve: Start) -> None:
    client = serve(make_decoder(max_length=64))
    long = (
        {"prompt": [65] * 64},
        {"prompt": [65] * 60, "max_tokens": 5},
        {"prompt": [65] * 60, "max_tokens": 4, "min_tokens": 5},
    )
    for body, param in zip(long, ("prompt", "max_tokens", "min_tokens"), strict=True):
        response = client.post("/v1/completions", json=body)
        assert response.status_code == 400 and response.json()["error"]["param"] == param
        assert response.json()["error"]["code"] == "context_length_exceeded"
    assert (
        client.post("/v1/completions", json={"prompt": [65] * 60, "max_tokens": 4}).status_code
        == 200
    )


def test_a_wrong_model_path_or_method(serve: Start) -> None:
    client = serve()
    missing = client.post("/v1/completions", json={"model": "gpt-9", "prompt": "a"})
    assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
    assert client.get("/v1/models/gpt-9").status_code == 404
    assert client.get("/v1/models/tiny").json()["max_model_len"] == 512
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["tiny"]
    for response, status in ((client.get("/v2"), 404), (client.get("/v1/completions"), 405)):
        assert response.status_code == status and response.json()["error"]["message"]


def test_the_key(serve: Start) -> None:
    client = serve(api_key="secret")
    for headers in (
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic secret"},
    ):
        response = client.post("/v1/completions", json={"prompt": "a"}, headers=headers)
        assert response.status_code == 401 and response.json()["error"]["code"] == "invalid_api_key"
    right = {"Authorization": "Bearer secret"}
    assert client.post("/v1/completions", json={"prompt": "a"}, headers=right).status_code == 200
    assert [
        client.get(path).status_code for path in ("/health", "/version", "/metrics", "/v1/models")
    ] == [200, 200, 200, 401]


def test_rules_that_change_the_law(serve: Start) -> None:
    body = {"prompt": TEXT, "speculative_config": {"method": "ngram", "rule": "typical"}}
    refused(serve(lossless=True), "/v1/completions", body, "speculative_config")


def test_two_names_of_one_limit(serve: Start) -> None:
    body = {"messages": MESSAGES, "max_tokens": 3, "max_completion_tokens": 4}
    refused(serve(), "/v1/chat/completions", body, "max_tokens")
