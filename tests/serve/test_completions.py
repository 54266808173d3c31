"""/v1/completions says what the library says, whole and in parts, for every field that shapes a
text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from draftproof import SamplingParams
from serving import TEXT, events, make_decoder, tokenizer

Start = Callable[..., TestClient]
PATH = "/v1/completions"


def ask(client: TestClient, **body: Any) -> dict[str, Any]:
    response = client.post(PATH, json={"model": "tiny", "prompt": TEXT} | body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def stream(client: TestClient, **body: Any) -> list[dict[str, Any]]:
    response = client.post(PATH, json={"model": "tiny", "prompt": TEXT, "stream": True} | body)
    assert response.headers["content-type"].startswith("text/event-stream")
    return events(response.text)


FIELDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "truncations": {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    "penalties": {
        "temperature": 0,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
    },
    "bias": {"temperature": 0, "logit_bias": {"65": 50, "66": 49.5}},
    "bans": {"temperature": 0, "bad_words": ["the"], "allowed_token_ids": [65, 66, 67, 277]},
    "stop string": {"temperature": 0, "stop": [" "], "include_stop_str_in_output": True},
    "stop ids": {"temperature": 0, "stop_token_ids": list(range(100, 300)), "min_tokens": 3},
    "no end": {"ignore_eos": True, "skip_special_tokens": False},
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_mean_what_sampling_params_mean(serve: Start, name: str) -> None:
    """A field that was dropped, or read under another name, gives another text."""
    fields = FIELDS[name] | {"seed": 5, "max_tokens": 12}
    decoder = make_decoder()
    biases = {int(token): bias for token, bias in fields.get("logit_bias", {}).items()}
    wanted = decoder.generate(
        TEXT, SamplingParams(**fields | ({"logit_bias": biases} if biases else {}))
    )
    choice = ask(serve(decoder), **fields, return_token_ids=True)["choices"][0]
    assert (choice["text"], tuple(choice["token_ids"])) == (wanted.text, wanted.token_ids)
    assert (choice["finish_reason"], choice["stop_reason"]) == (
        wanted.finish_reason,
        wanted.outputs[0].stop_reason,
    )
    without = decoder.generate(
        TEXT, SamplingParams(seed=5, max_tokens=12, temperature=fields.get("temperature", 1.0))
    )
    assert name in ("greedy", "no end") or without.token_ids != wanted.token_ids


def test_the_model_s_own_defaults_stand_behind_the_fields(serve: Start) -> None:
    """As in vLLM: temperature 1 unless the request or the model's generation config names one."""
    decoder = make_decoder()
    decoder.target.generation_config.update(temperature=0.3, top_p=0.5)  # type: ignore[attr-defined]
    wanted = decoder.generate(
        TEXT, SamplingParams(temperature=0.3, top_p=0.5, seed=3, max_tokens=16)
    )
    assert ask(serve(decoder), seed=3)["choices"][0]["text"] == wanted.text


def test_a_stream_joins_to_the_whole(serve: Start) -> None:
    """Text, ids, log-probabilities, usage and the ends of two texts of two prompts."""
    client = serve()
    body: dict[str, Any] = dict(
        prompt=[TEXT, "def add(one, other):"],
        n=2,
        seed=4,
        max_tokens=9,
        logprobs=2,
        return_token_ids=True,
    )
    whole = ask(client, **body)
    *chunks, last = stream(client, **body, stream_options={"include_usage": True})
    assert (
        last["choices"] == []
        and last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 36
    )
    assert all(chunk["usage"] is None for chunk in chunks)
    for choice in whole["choices"]:
        parts = [
            part
            for chunk in chunks
            for part in chunk["choices"]
            if part["index"] == choice["index"]
        ]
        assert "".join(part["text"] for part in parts) == choice["text"]
        assert sum((part.get("token_ids", []) for part in parts), []) == choice["token_ids"]
        scored = [part["logprobs"] for part in parts if part["logprobs"]]
        assert {len(values) for values in choice["logprobs"].values()} == {9}
        for key in ("tokens", "text_offset"):
            assert sum((one[key] for one in scored), []) == choice["logprobs"][key]
        for key in ("token_logprobs", "top_logprobs"):
            joined = sum((one[key] for one in scored), [])
            assert [pytest.approx(one, abs=1e-5) for one in choice["logprobs"][key]] == joined
        assert (
            [part["finish_reason"] for part in parts if part["finish_reason"]]
            == [choice["finish_reason"]]
            == ["length"]
        )


def test_counts_that_go_on_through_a_stream(serve: Start) -> None:
    chunks = stream(
        serve(),
        max_tokens=6,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == 6


def test_echo_scores_the_prompt_and_the_text(serve: Start) -> None:
    """What an evaluation harness asks for: log-probabilities of a prompt's tokens, None for the
    first."""
    decoder = make_decoder()
    ids = tokenizer().encode(TEXT)
    wanted = decoder.generate(
        ids, SamplingParams(temperature=0, max_tokens=1, logprobs=1, prompt_logprobs=1)
    )
    choice = ask(serve(decoder), prompt=ids, echo=True, logprobs=1, max_tokens=1, temperature=0)[
        "choices"
    ][0]
    assert wanted.prompt_logprobs is not None and wanted.logprobs is not None
    scored = [each and each.logprob for each in (*wanted.prompt_logprobs, *wanted.logprobs)]
    assert choice["text"] == TEXT + wanted.text
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(scored) and scored[0] is None
    assert "".join(choice["logprobs"]["tokens"][:-1]) == TEXT
    places = choice["logprobs"]["text_offset"]
    assert [TEXT[place : place + 1] for place in places[:-1]] == [
        one[:1] for one in choice["logprobs"]["tokens"][:-1]
    ]
    assert all(len(top) in (1, 2) for top in choice["logprobs"]["top_logprobs"][1:])


def test_an_echo_comes_once_to_every_text_and_first(serve: Start) -> None:
    chunks = stream(serve(), echo=True, n=2, max_tokens=3, logprobs=0)
    for index in range(2):
        parts = [part for chunk in chunks for part in chunk["choices"] if part["index"] == index]
        assert parts[0]["text"] == TEXT and parts[0]["logprobs"]["text_offset"][0] == 0
        assert parts[1]["logprobs"]["text_offset"][0] == len(TEXT)


def test_log_probabilities_of_a_prompt_in_vllm_s_form(serve: Start) -> None:
    choice = ask(serve(), prompt_logprobs=2, max_tokens=1)["choices"][0]
    ids, first = tokenizer().encode(TEXT), choice["prompt_logprobs"]
    assert first[0] is None and len(first) == len(ids)
    for token, entry in zip(ids[1:], first[1:], strict=True):
        own = entry[str(token)]
        assert own["decoded_token"] == tokenizer().decode([token]) and 2 <= len(entry) <= 3
        assert sum(each["logprob"] > own["logprob"] for each in entry.values()) <= own["rank"] - 1


def test_prompts_of_ids_and_of_texts_are_the_same(serve: Start) -> None:
    client, ids = serve(), tokenizer().encode(TEXT)
    texts = [
        ask(client, prompt=prompt, seed=1)["choices"][0]["text"]
        for prompt in (TEXT, ids, [TEXT], [ids])
    ]
    assert len(set(texts)) == 1


def test_a_request_chooses_how_it_is_drafted(serve: Start) -> None:
    """Greedy text is the same whatever drafts; how it came about is not."""
    client = serve(make_decoder("suffix"))
    made = {}
    choices: list[dict[str, Any] | None] = [
        None,
        {"num_speculative_tokens": 0},
        {"method": "none"},
        {"num_speculative_tokens": 2},
        {"method": "ngram", "num_speculative_tokens": 3},
        {"method": "recycling"},
    ]
    for config in choices:
        before = counter(client, "spec_decode_num_draft_tokens")
        body = {} if config is None else {"speculative_config": config}
        text = ask(client, temperature=0, max_tokens=24, logit_bias={"65": 100}, **body)["choices"][
            0
        ]["text"]
        made[str(config)] = text, counter(client, "spec_decode_num_draft_tokens") - before
    assert len({text for text, _ in made.values()}) == 1
    drafted = [count for _, count in made.values()]
    assert drafted[0] > 0 and drafted[1] == drafted[2] == 0 and len(set(drafted)) >= 4


BOUND: list[tuple[dict[str, Any], Callable[[str], bool]]] = [
    (
        {"structured_outputs": {"choice": ["the dog", "the cat"]}},
        lambda text: text in ("the dog", "the cat"),
    ),
    (
        {"structured_outputs": {"regex": "[0-9]{3}-[a-c]{2}"}},
        lambda text: bool(re.fullmatch("[0-9]{3}-[a-c]{2}", text)),
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "a",
                    "strict": True,
                    "schema": {"enum": [{"a": 1}, [2, 3]]},
                },
            }
        },
        lambda text: text[:1] in "{[" and json.loads(text) in ({"a": 1}, [2, 3]),
    ),
]


@pytest.mark.parametrize("number", range(len(BOUND)))
def test_a_text_keeps_to_its_grammar(serve: Start, number: int) -> None:
    """Drafted or not, and beside a text that is free."""
    pytest.importorskip("llguidance")
    fields, keeps = BOUND[number]
    client = serve(make_decoder(None, ends=True))
    body = fields | {"max_tokens": 60, "seed": 3, "n": 3}
    texts = [choice["text"] for choice in ask(client, **body)["choices"]]
    assert all(keeps(text) for text in texts), texts
    assert not keeps(ask(client, seed=3, max_tokens=8)["choices"][0]["text"])


def counter(client: TestClient, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}_total{{")
    )
