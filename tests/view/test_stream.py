"""A saved stream of server-sent events is shown as far as it tells; what is none is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from draftproof.errors import UsageError
from draftproof.view.data import run_data
from draftproof.view.page import live_page


def saved(folder: Path, *parts: Any, end: str = "data: [DONE]\n\n") -> Path:
    path = folder / "run.sse"
    lines = [part if isinstance(part, str) else f"data: {json.dumps(part)}" for part in parts]
    path.write_text("\n\n".join(lines) + "\n\n" + end, encoding="utf-8")
    return path


def chat(**choice: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, **choice}]}


def said(*texts: str) -> dict[str, Any]:
    best = {"token": "x", "logprob": 0.0}
    content = [{"token": text, "logprob": -1.0, "top_logprobs": [best]} for text in texts]
    return chat(delta={"content": "".join(texts)}, logprobs={"content": content})


def test_a_part_of_several_tokens_is_one_round_and_claims_no_draft(tmp_path: Path) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 7}}
    first = chat(delta={"role": "assistant", "content": ""})
    path = saved(tmp_path, ": ping", first, said("a", "b"), said("c"), usage)
    data = run_data(path)
    assert [(r["texts"], r["start"]) for r in data["rounds"]] == [(["a", "b"], 7), (["c"], 9)]
    assert data["rounds"][0]["origins"] == ["plain", "plain"] and data["acceptance"] == []
    assert (
        data["rounds"][0]["best"][1] == [["x", 1.0]] and "does not say" in data["rounds"][0]["note"]
    )
    assert (data["target"], data["num_prompt_tokens"]) == ("m", 7)


def test_without_logprobs_a_part_is_one_text(tmp_path: Path) -> None:
    data = run_data(saved(tmp_path, chat(text="three small tokens"), chat(delta={"content": "é"})))
    assert [r["texts"] for r in data["rounds"]] == [["three small tokens"], ["é"]]


def test_our_servers_rounds_stay_as_they_are_and_get_their_probabilities(tmp_path: Path) -> None:
    shown = {"start": 3, "tokens": [1, 2], "texts": ["a", "b"], "origins": ["draft", "bonus"]}
    data = run_data(
        saved(
            tmp_path,
            said("a", "b") | {"choices": [said("a", "b")["choices"][0] | {"rounds": [shown]}]},
        )
    )
    assert data["rounds"] == [shown | {"best": [[["x", 1.0]]] * 2}]


def test_a_stream_that_broke_off_shows_what_came(tmp_path: Path) -> None:
    path = saved(tmp_path, chat(text="whole"), end='data: {"choices": [{"te')
    assert len(run_data(path)["rounds"]) == 1


@pytest.mark.parametrize(
    "bad, words",
    [
        ("data: {nonsense", "line 3 is not JSON"),
        ({"error": {"message": "no"}}, "line 3 is an error of the server"),
        ({"choices": [7]}, "line 3 is no part of a completion"),
        (chat(rounds=[{}]), "line 3 is no part of a completion"),
    ],
)
def test_what_is_no_stream_is_refused_by_its_line(tmp_path: Path, bad: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run_data(saved(tmp_path, chat(text="a"), bad, chat(text="b")))


def test_the_live_page_asks_its_own_server_alone() -> None:
    page = live_page()
    assert "connect-src 'self'" in page and "innerHTML" not in page
    assert not re.search(r"https?:|//[a-z]|src=|href=|@import|url\(|@[A-Z]+@", page)
