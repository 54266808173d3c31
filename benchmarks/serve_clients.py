"""Other people's clients against a running server: what each asked, and what it got.

    python benchmarks/serve_clients.py URL MODEL RAW openai curl litellm

In an environment that has the packages openai and litellm. A line a check; the last word of each is
whether the answer was as it should be."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raw_lines import append

ASKED: list[Any] = [{"role": "user", "content": "Name three colours, as a list."}]
CITY = {"enum": ["Oslo", "Rome"]}
FIELDS: dict[str, Any] = {
    "max_completion_tokens": 24,
    "temperature": 0.7,
    "top_p": 0.9,
    "seed": 1,
    "n": 2,
    "stop": ["\n\n\n"],
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "logit_bias": {"42": -5},
    "logprobs": True,
    "top_logprobs": 2,
    "user": "ada",
}
"""OpenAI's own; those of vLLM go through extra_body."""
MORE: dict[str, Any] = {
    "top_k": 40,
    "min_p": 0.01,
    "repetition_penalty": 1.05,
    "min_tokens": 2,
    "return_token_ids": True,
    "speculative_config": {"num_speculative_tokens": 4},
}


def by_openai(url: str, model: str) -> Iterator[tuple[str, Any, bool]]:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    chat: Any = {"model": model, "messages": ASKED} | FIELDS
    whole = client.chat.completions.create(**chat, extra_body=MORE)
    yield "chat, every field", whole.model_dump(), len(whole.choices) == 2
    parts = list(
        client.chat.completions.create(
            **chat, extra_body=MORE, stream=True, stream_options={"include_usage": True}
        )
    )
    texts = ["", ""]
    for part in parts:
        for choice in part.choices:
            texts[choice.index] += choice.delta.content or ""
    yield "chat, streamed", texts, texts == [choice.message.content for choice in whole.choices]
    again = asyncio.run(many(url, chat))
    yield "chat, async, 8 at a time", again, again == [texts[0]] * 8
    held: Any = {
        "type": "json_schema",
        "json_schema": {"name": "c", "schema": CITY, "strict": True},
    }
    made = client.chat.completions.create(
        model=model, messages=ASKED, max_tokens=100, response_format=held
    )
    said = made.choices[0].message.content or ""
    yield "response_format", said, json.loads(said) in CITY["enum"]
    file = "def area(radius):\n    return 3.14159 * radius * radius\n"
    expected: Any = {"type": "content", "content": file}
    edit: Any = [{"role": "user", "content": f"Repeat this code:\n{file}"}]
    plain, predicted = (
        client.chat.completions.create(
            model=model, messages=edit, temperature=0, max_tokens=40, **more
        )
        for more in ({}, {"prediction": expected})
    )
    usage = predicted.usage.completion_tokens_details if predicted.usage else None
    same = plain.choices[0].message.content == predicted.choices[0].message.content
    yield "prediction", usage.model_dump() if usage else None, same
    old = client.completions.create(
        model=model, prompt=["One", "Two"], max_tokens=4, echo=True, logprobs=1, seed=1
    )
    yield "completions", old.model_dump(), old.choices[1].text.startswith("Two")
    try:
        client.chat.completions.create(**chat | {"top_p": 7})
        yield "a wrong value", None, False
    except openai.BadRequestError as error:
        yield "a wrong value", error.body, error.param == "top_p"
    yield "models", [each.id for each in client.models.list()], True


async def many(url: str, chat: dict[str, Any]) -> list[str]:
    import openai

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        answers = await asyncio.gather(
            *(client.chat.completions.create(**chat, extra_body=MORE) for _ in range(8))
        )
    return [answer.choices[0].message.content for answer in answers]


def by_curl(url: str, model: str) -> Iterator[tuple[str, Any, bool]]:
    body = json.dumps({"model": model, "messages": ASKED, "max_tokens": 8, "seed": 1})
    head = ["-H", "Content-Type: application/json", "-d", body]
    said = curl("-s", f"{url}/v1/chat/completions", *head)
    yield "chat", said, json.loads(said)["usage"]["completion_tokens"] <= 8
    body = json.dumps({"model": model, "prompt": "One", "max_tokens": 8, "stream": True})
    head[-1] = body
    said = curl("-sN", f"{url}/v1/completions", *head)
    yield "completions, streamed", said, said.rstrip().endswith("data: [DONE]")
    said = curl("-s", f"{url}/metrics")
    yield "metrics", said[:200], "vllm:num_requests_running" in said


def curl(*words: str) -> str:
    return subprocess.run(["curl", *words], capture_output=True, text=True, check=True).stdout


def by_litellm(url: str, model: str) -> Iterator[tuple[str, Any, bool]]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks the network at its import
    import litellm

    call: Any = {"model": f"openai/{model}", "api_base": f"{url}/v1", "api_key": "none"}
    call |= {"messages": ASKED, "max_tokens": 16, "seed": 1}
    whole = litellm.completion(**call)
    text = whole.choices[0].message.content
    yield "completion", whole.model_dump(), bool(text)
    parts = [
        part.choices[0].delta.content or "" for part in litellm.completion(**call, stream=True)
    ]
    yield "completion, streamed", "".join(parts), "".join(parts) == text
    call["model"] = f"hosted_vllm/{model}"
    whole = litellm.completion(**call)
    yield "completion, as vLLM's", whole.model_dump(), whole.choices[0].message.content == text
    held = asyncio.run(litellm.acompletion(**call, top_k=1))
    yield "acompletion", held.model_dump(), bool(held.choices[0].message.content)


CLIENTS = {"openai": by_openai, "curl": by_curl, "litellm": by_litellm}


def main() -> None:
    url, model, raw, *names = sys.argv[1:]
    for name in names:
        for what, got, is_right in CLIENTS[name](url, model):
            append(Path(raw), {"client": name, "what": what, "right": is_right, "got": got})
            print(name, what, "as it should be" if is_right else "WRONG", sep=": ", flush=True)


if __name__ == "__main__":
    main()
