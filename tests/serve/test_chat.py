"""/v1/chat/completions: the model's template, log-probabilities, tools, and predicted outputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from starlette.testclient import TestClient

from draftproof import SamplingParams
from serving import TEXT, events, make_decoder, tokenizer

Start = Callable[..., TestClient]
PATH = "/v1/chat/completions"
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "sit", "parameters": {"type": "object", "properties": {}}},
    }
]


def ask(client: TestClient, **body: Any) -> dict[str, Any]:
    response = client.post(PATH, json={"model": "tiny", "messages": ASKED} | body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_a_chat_is_what_the_library_answers(serve: Start) -> None:
    decoder = make_decoder()
    wanted = decoder.generate(ASKED, SamplingParams(seed=2, max_tokens=10, logprobs=2))
    answer = ask(
        serve(decoder),
        seed=2,
        max_completion_tokens=10,
        logprobs=True,
        top_logprobs=2,
        return_token_ids=True,
    )
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": wanted.text, "refusal": None}
    assert wanted.logprobs is not None
    for entry, scored in zip(choice["logprobs"]["content"], wanted.logprobs, strict=True):
        assert entry["logprob"] == pytest.approx(scored.logprob)
        assert bytes(entry["bytes"]).decode("utf-8", "replace") == entry["token"]
        assert [top["logprob"] for top in entry["top_logprobs"]] == pytest.approx(
            [logprob for _, logprob in scored.top]
        )
    assert (
        b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"]).decode(
            "utf-8", "replace"
        )
        == wanted.text
    )
    assert (
        answer["prompt_token_ids"] == list(wanted.prompt_token_ids)
        and answer["usage"]["completion_tokens"] == 10
    )


def test_without_a_limit_a_chat_goes_on_to_the_end_of_the_context(serve: Start) -> None:
    answer = ask(serve(make_decoder(max_length=160)), temperature=0, ignore_eos=True)
    assert (
        answer["usage"]["total_tokens"] == 160 and answer["choices"][0]["finish_reason"] == "length"
    )


def test_a_stream_begins_with_the_role_and_joins_to_the_answer(serve: Start) -> None:
    client = serve()
    whole = ask(client, seed=8, n=2, max_tokens=7)
    chunks = events(
        client.post(
            PATH, json={"messages": ASKED, "seed": 8, "n": 2, "max_tokens": 7, "stream": True}
        ).text
    )
    for choice in whole["choices"]:
        parts = [
            part
            for chunk in chunks
            for part in chunk["choices"]
            if part["index"] == choice["index"]
        ]
        assert parts[0]["delta"] == {"role": "assistant", "content": ""}
        assert (
            "".join(part["delta"].get("content", "") for part in parts)
            == choice["message"]["content"]
        )
        assert parts[-1]["finish_reason"] == "length"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"} and len(
        {chunk["id"] for chunk in chunks}
    ) == 1


def test_parts_of_text_and_developers(serve: Start) -> None:
    """OpenAI's parts, joined as in vLLM, and its newer name of the system message."""
    client = serve()
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    plain = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one\ntwo"}]
    given = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    found = [
        client.post("/tokenize", json={"messages": messages}).json()["tokens"]
        for messages in (plain, given)
    ]
    assert (
        found[0]
        == found[1]
        == tokenizer().apply_chat_template(plain, add_generation_prompt=True)["input_ids"]
    )


def test_tokens_there_and_back(serve: Start) -> None:
    client = serve()
    found = client.post("/tokenize", json={"prompt": TEXT, "return_token_strs": True}).json()
    assert (
        found["count"] == len(found["tokens"]) == len(found["token_strs"])
        and found["max_model_len"] == 512
    )
    assert "".join(found["token_strs"]) == TEXT
    assert client.post("/detokenize", json={"tokens": found["tokens"]}).json() == {"prompt": TEXT}


def calling(serve: Start, text: str) -> TestClient:
    """A server whose model answers every chat with `text`."""
    from draftproof import SpeculativeDecoder, TableModel

    ids = [*tokenizer().encode(text), tokenizer().eos_token_id]
    size = len(tokenizer())

    def law(prefix: tuple[int, ...]) -> list[float]:
        """The answer's tokens in order after the prompt, which ends in a space behind a colon."""
        start = tokenizer().encode("assistant: ")
        begin = max(
            place
            for place in range(len(prefix) + 1)
            if list(prefix[place - len(start) : place]) == start
        )
        row = [0.0] * size
        row[ids[min(len(prefix) - begin, len(ids) - 1)]] = 1.0
        return row

    target = TableModel(
        law, vocab_size=size, max_length=1024, eos_token_ids=(tokenizer().eos_token_id,)
    )
    return serve(SpeculativeDecoder(None, target, tokenizer()))


def test_a_call_is_found_in_what_the_model_writes(serve: Start) -> None:
    """Whole and in parts; the call is a part of its own, and the reason says so."""
    said = 'Well. <tool_call>\n{"name": "sit", "arguments": {"where": "mat"}}\n</tool_call>'
    client = calling(serve, said)
    choice = ask(client, tools=TOOLS)["choices"][0]
    call = choice["message"]["tool_calls"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Well."
    assert call["function"]["name"] == "sit" and json.loads(call["function"]["arguments"]) == {
        "where": "mat"
    }
    chunks = events(
        client.post(PATH, json={"messages": ASKED, "tools": TOOLS, "stream": True}).text
    )
    deltas = [part["delta"] for chunk in chunks for part in chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == "Well."
    calls = [one for delta in deltas for one in delta.get("tool_calls", ())]
    assert [(one["index"], one["function"]["name"]) for one in calls] == [(0, "sit")]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_without_tools_the_same_answer_is_text(serve: Start) -> None:
    """Also with tool_choice "none", with which the tools are not even shown."""
    said = '<tool_call>{"name": "sit", "arguments": {}}</tool_call>'
    client = calling(serve, said)
    for body in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        choice = ask(client, **body)["choices"][0]
        assert choice["message"]["content"] == said and choice["finish_reason"] == "stop"


WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FORECAST = {"type": "function", "function": {"name": 'fore"cast', "parameters": WEATHER}}
NAMES = ("sit", 'fore"cast')


@pytest.mark.parametrize("parser", ["hermes", "llama3_json", None])
def test_a_call_that_is_forced_keeps_to_its_schema(serve: Start, parser: str | None) -> None:
    """A random model, which would say anything: some tool, the one that is named, and one call
    only; the text is nothing but calls."""
    client = serve(make_decoder(max_length=1024, ends=True), tool_call_parser=parser)
    body: dict[str, Any] = {"tools": [*TOOLS, FORECAST], "max_tokens": 200, "seed": 1}
    body |= {"parallel_tool_calls": False, "n": 4, "logit_bias": {str(ord(" ")): -100}}
    named = {"type": "function", "function": {"name": 'fore"cast'}}
    for choice in ("required", named):
        for answer in ask(client, **body, tool_choice=choice)["choices"]:
            (call,) = answer["message"]["tool_calls"]
            assert answer["finish_reason"] == "tool_calls" and answer["message"]["content"] is None
            assert call["function"]["name"] in (('fore"cast',) if choice is named else NAMES)
            given = json.loads(call["function"]["arguments"])
            if call["function"]["name"] == 'fore"cast':
                assert given["city"] in ("Oslo", "Rome") and given["days"] <= 9


@pytest.mark.parametrize(
    ("param", "body"),
    [
        ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "run"}}}),
        ("response_format", {"response_format": {"type": "json_object"}}),
        ("structured_outputs", {"structured_outputs": {"choice": ["a"]}}),
        ("parallel_tool_calls", {"tool_choice": "auto", "parallel_tool_calls": False}),
        (
            "tools",
            {
                "tools": [
                    {"type": "function", "function": {"name": "a", "parameters": {"type": "no"}}}
                ]
            },
        ),
    ],
)
def test_what_cannot_be_forced_is_refused(serve: Start, param: str, body: dict[str, Any]) -> None:
    asked = {"messages": ASKED, "tools": TOOLS, "tool_choice": "required"} | body
    response = serve().post(PATH, json=asked)
    assert response.status_code == 400 and response.json()["error"]["param"] == param


def test_a_template_without_tools_says_so_and_not_the_parser(serve: Start) -> None:
    """Nobody is sent to a flag that cannot help; with tool_choice "none" the tools are not
    needed."""
    decoder = make_decoder()
    decoder.tokenizer = copy(decoder.tokenizer)
    decoder.tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    )
    client = serve(decoder)
    for choice in ("auto", "required"):
        body = {"messages": ASKED, "tools": TOOLS, "tool_choice": choice}
        error = client.post(PATH, json=body).json()["error"]
        assert error["param"] == "tools" and "template takes no tools" in error["message"]
    assert ask(client, tools=TOOLS, tool_choice="none", max_tokens=3)["choices"]


@pytest.mark.parametrize("content", ["", [{"type": "text", "text": ""}]])
def test_an_empty_prediction_is_none(serve: Start, content: Any) -> None:
    """The text, and what drafts it, are as without one."""
    client, body = serve(), {"seed": 3, "max_tokens": 12, "logit_bias": {"65": 100}}
    body |= {"return_rounds": True}
    plain, predicted = (
        ask(client, **body, **more)
        for more in ({}, {"prediction": {"type": "content", "content": content}})
    )
    one, other = predicted["choices"][0], plain["choices"][0]
    assert one["message"] == other["message"] and any(r["draft_tokens"] for r in one["rounds"])
    assert [r["draft_tokens"] for r in one["rounds"]] == [
        r["draft_tokens"] for r in other["rounds"]
    ]
    assert predicted["usage"]["completion_tokens_details"] == {
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
        "reasoning_tokens": 0,
    }


def test_a_request_may_see_its_own_rounds(serve: Start) -> None:
    """As the viewer shows them, whole and in the parts of a stream; together they are the text."""
    client = serve()
    body = {"seed": 5, "max_tokens": 20, "n": 2, "return_rounds": True, "logit_bias": {"65": 5}}
    choices = ask(client, **body)["choices"]
    chunks = events(client.post(PATH, json={"messages": ASKED, "stream": True} | body).text)
    for choice in choices:
        rounds = choice["rounds"]
        said = "".join(text for each in rounds for text in each["texts"])
        assert said and choice["message"]["content"].startswith(said)
        assert any(each["draft_tokens"] for each in rounds)
        assert {each["sample"] for each in rounds} == {choice["index"]}
        streamed = [
            each
            for chunk in chunks
            for part in chunk["choices"]
            if part["index"] == choice["index"]
            for each in part.get("rounds", ())
        ]
        assert [each["tokens"] for each in streamed] == [each["tokens"] for each in rounds]


def test_a_turn_after_a_call_is_read(serve: Start) -> None:
    """What a client sends back: the call it was given, and the tool's answer."""
    call = {"id": "call_1", "type": "function", "function": {"name": "sit", "arguments": "{}"}}
    answered = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sat"},
    ]
    found = serve().post("/tokenize", json={"messages": [*ASKED, *answered]})
    text = tokenizer().decode(found.json()["tokens"])
    assert '"name": "sit"' in text and "tool: sat" in text and "None" not in text


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_prediction_is_drafted_and_counted_and_changes_nothing(
    serve: Start, temperature: float
) -> None:
    """The answer is predicted with a word replaced: most of it is accepted, the text stays what it
    is."""
    decoder = make_decoder()
    client, body = serve(decoder), {"temperature": temperature, "seed": 6, "max_tokens": 40}
    plain = ask(
        client, **body, speculative_config={"num_speculative_tokens": 0}, return_token_ids=True
    )
    assert plain["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0
    ids = plain["choices"][0]["token_ids"]
    expected = tokenizer().decode([*ids[:12], 65, 66, *ids[14:]], skip_special_tokens=False)
    for content in (
        expected,
        [{"type": "text", "text": expected[:9]}, {"type": "text", "text": expected[9:]}],
    ):
        answer = ask(client, **body, prediction={"type": "content", "content": content})
        assert (
            answer["choices"][0]["message"]["content"] == plain["choices"][0]["message"]["content"]
        )
        counts = answer["usage"]["completion_tokens_details"]
        assert counts["accepted_prediction_tokens"] > 0 and counts["rejected_prediction_tokens"] > 0
        assert counts["accepted_prediction_tokens"] <= answer["usage"]["completion_tokens"]


def test_drafts_that_come_from_elsewhere_are_no_prediction(serve: Start) -> None:
    client = serve()
    usage = ask(client, temperature=0, logit_bias={"65": 100}, max_tokens=20)["usage"]
    drafted = [
        line
        for line in client.get("/metrics").text.splitlines()
        if line.startswith("vllm:spec_decode_num_draft_tokens_total{")
    ]
    assert float(drafted[0].rsplit(" ", 1)[1]) > 0
    counts = usage["completion_tokens_details"]
    assert counts["accepted_prediction_tokens"] == counts["rejected_prediction_tokens"] == 0
