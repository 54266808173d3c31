"""`draftproof view`: the page holds exactly what was recorded, no text becomes HTML, and what is no
record is refused."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from draftproof.cli import main as cli
from draftproof.core.records import Round, Seconds
from draftproof.decode.record import RecordHeader, read_rounds, read_texts, write_rounds
from draftproof.view.data import acceptance, accepted_nodes, run_data
from draftproof.view.page import as_script, view_page

HEADER = RecordHeader("target", "ngram", "match", (7, 8))
ROUNDS = [
    Round(
        2,
        (1, 2, 3),
        (-1, 0, 1),
        (1, 4),
        ("draft", "replacement"),
        1,
        2,
        drafter="ngram",
        seconds=Seconds(1, 0.5, 2, 3),
    ),
    Round(4, (5,), (-1,), (5, 6), ("draft", "bonus"), 1, 1),
    Round(6, (), (), (0,), ("plain",), 0, 0, note="no match"),
]
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "\u202eright\u200f to \u05d0\u05d1 left",
    "nul\0 and \x1b[31m",
    "\ud800 alone \udfff",
    "@RUNS@",
    "&lt;\u2028\u2029",
    "long" * 50_000,
]


class Letters:
    """A tokenizer whose token i is text i of a list."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def decode(self, token_ids: Any, **_: bool) -> str:
        return "".join(self.texts[token] for token in token_ids)


class Scripts(HTMLParser):
    """The tags of a page, and the text of the script that holds the data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.data, self._inside = "", False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._inside = ("id", "data") in attrs

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data, self._inside = data, False


def recorded(folder: Path, texts: list[str] | None = None, name: str = "rounds.jsonl") -> Path:
    path = folder / name
    write_rounds(path, HEADER, ROUNDS, None if texts is None else Letters(texts))
    return path


def test_the_texts_are_beside_the_rounds_and_older_files_have_ids(tmp_path: Path) -> None:
    path, older = recorded(tmp_path, list("abcdefg")), recorded(tmp_path, name="older.jsonl")
    assert read_rounds(path) == read_rounds(older) == (HEADER, ROUNDS)
    assert read_texts(path) == [(["b", "e"], ["b", "c", "d"]), (["f", "g"], ["f"]), (["a"], [])]
    assert read_texts(older) == [None] * 3
    assert run_data(older)["rounds"][0]["texts"] == ["[1]", "[4]"]


def test_a_character_of_several_tokens_is_text_once_and_each_sample_starts_anew(
    tmp_path: Path,
) -> None:
    class Halves:
        def decode(self, token_ids: Any, **_: bool) -> str:
            return bytes(token_ids).decode(errors="replace")

    first, second = "é".encode()
    rounds = [Round(2, (), (), (token,), ("plain",), 0, 0) for token in (first, first, second)]
    rounds[2] = Round(3, (), (), (second,), ("plain",), 0, 0)
    path = tmp_path / "rounds.jsonl"
    write_rounds(path, HEADER, rounds, Halves())
    assert [given and given[0] for given in read_texts(path)] == [[""], [""], ["é"]]
    assert [shown["sample"] for shown in run_data(path)["rounds"]] == [0, 1, 1]


def test_the_data_of_the_page_are_the_record(tmp_path: Path) -> None:
    data = run_data(recorded(tmp_path, list("abcdefg")))
    first = data["rounds"][0]
    assert (first["texts"], first["draft_texts"], first["accepted"], first["reached"]) == (
        ["b", "e"],
        ["b", "c", "d"],
        [0],
        2,
    )
    assert (first["seconds"], first["drafter"]) == ([1, 2, 3], "ngram")
    assert data["acceptance"] == [(2, 2), (0, 1)] == acceptance(ROUNDS)
    assert json.loads(Scripts(view_page([data, data])).data) == json.loads(json.dumps([data, data]))


def test_the_accepted_path_of_a_tree() -> None:
    tree = Round(2, (1, 2, 3, 4), (-1, -1, 1, 1), (2, 4, 9), ("draft", "draft", "bonus"), 2, 2)
    assert accepted_nodes(tree) == [1, 3]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_becomes_html(tmp_path: Path, text: str) -> None:
    data = run_data(recorded(tmp_path, [text] * 7)) | {"name": text, "target": text}
    page, plain = Scripts(view_page([data])), Scripts(view_page([]))
    assert page.tags == plain.tags
    assert json.loads(page.data)[0] == json.loads(json.dumps(data))
    assert as_script(text).isascii() and not re.search("[<>&]", as_script(text))


def test_the_page_fetches_nothing() -> None:
    page = view_page([])
    assert not re.search(r"https?:|//[a-z]|src=|href=|@import|url\(", page)
    assert "innerHTML" not in page and "default-src 'none'" in page


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = recorded(tmp_path), recorded(tmp_path, name="b.jsonl")
    html = tmp_path / "out.html"
    assert cli.run(["view", str(path), str(other), "--html", str(html)]) == 0
    assert [run["name"] for run in json.loads(Scripts(html.read_text()).data)] == [
        "rounds.jsonl",
        "b.jsonl",
    ]
    assert f"wrote {html}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "No such file"),
        ("", "no header"),
        ("a haiku\n", "is not JSON"),
        ('{"format":"draftproof.bench"}\n', "says format 'draftproof.bench'"),
        (("start", -1), "not a whole number"),
        (("origins", ["draft", "else"]), "one of the origins"),
        (("draft_parents", [-1, 1, 1]), "a parent before it"),
        (("seconds", {"draft": "x"}), "no durations"),
        (("texts", ["a"]), "key 'texts'"),
        (("reached", 9), "9 verified positions of 3"),
    ],
)
def test_what_is_no_record_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, words: str
) -> None:
    good, bad, html = (
        recorded(tmp_path, list("abcdefg")),
        tmp_path / "bad.jsonl",
        tmp_path / "out.html",
    )
    if isinstance(content, tuple):
        header, first, *_ = good.read_text().splitlines()
        content = f"{header}\n{json.dumps(json.loads(first) | dict([content]))}\n"
    if content is not None:
        bad.write_text(content)
    assert cli.run(["view", str(good), str(bad), "--html", str(html)]) == 2
    said = capsys.readouterr().err
    assert words in said and "bad.jsonl" in said and said.count("\n") == 1
    assert not html.exists()


def test_a_run_is_not_replaced_by_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded(tmp_path)
    before = path.read_bytes()
    assert cli.run(["view", str(path), "--html", str(path)]) == 2
    assert "one of the recorded runs" in capsys.readouterr().err and path.read_bytes() == before
