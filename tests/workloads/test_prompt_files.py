"""Prompt files: every form, and one sentence with the line for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof.errors import UsageError
from draftproof.workloads.prompt_files import builtin_items, choose, encode, read_items
from tiny import word_tokenizer


def written(tmp_path: Path, text: str, name: str = "prompts.jsonl") -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_json_lines_of_every_form(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"prompt": "one", "source": "seed"},
        {
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "two"},
            ],
            "answer": "w1 w2",
        },
        {"question_id": 7, "category": "qa", "turns": ["three", "and then?"]},
    ]
    items = read_items(written(tmp_path, "\n".join(map(json.dumps, lines)) + "\n\n"))
    assert [item.workload for item in items] == ["seed", "prompts", "qa"]
    assert items[0].prompt == [{"role": "user", "content": "one"}]
    assert (
        items[1].prompt[0] == {"role": "system", "content": "be brief"}
        and items[1].answer == "w1 w2"
    )
    assert items[2].prompt == [{"role": "user", "content": "three"}] and items[2].where.endswith(
        "line 3"
    )
    assert items[2].later == ("and then?",) and items[0].later == ()


def test_a_line_separator_inside_a_string_ends_no_line(tmp_path: Path) -> None:
    """U+2028, U+2029 and U+0085 may stand unescaped in JSON; a mark of byte order before the first
    line is no part of it."""
    lines = [
        json.dumps({"prompt": f"one{mark}two"}, ensure_ascii=False) for mark in "\u2028\u2029\x85"
    ]
    items = read_items(written(tmp_path, "\ufeff" + "\n".join(lines)))
    assert [item.prompt[0]["content"] for item in items] == [
        "one\u2028two",
        "one\u2029two",
        "one\x85two",
    ]  # type: ignore[index]


def test_text_is_one_prompt_or_as_many_as_separators_make(tmp_path: Path) -> None:
    assert len(read_items(written(tmp_path, "def f():\n\n    return 1\n", "a.txt"))) == 1
    items = read_items(written(tmp_path, "one\n---\ntwo\nlines\n---\n\n", "b.txt"))
    assert [item.prompt[0]["content"] for item in items] == ["one", "two\nlines"]  # type: ignore[index]
    assert items[1].where.endswith("line 3")


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("", "a.txt", "is empty"),
        ("  \n\n", "a.jsonl", "is empty"),
        ("---\n---\n", "a.txt", "holds no prompt"),
        ('{"prompt": "x"}\nnonsense\n', "a.jsonl", "line 2 is not JSON"),
        (
            '{"prompt": "x"}\n{"text": "y"}\n',
            "a.jsonl",
            "line 2 has no text under 'prompt', 'messages' or 'turns'; its keys: text",
        ),
        ('{"prompt": "x"}\n\n[1]\n', "a.jsonl", "line 3 is a list"),
        ('{"messages": [{"role": "user"}]}\n', "a.jsonl", "line 1: chat message 0 needs the keys"),
        ('{"prompt": ""}\n', "a.jsonl", "line 1 has no text"),
        ('{"prompt": "x", "answer": 3}\n', "a.jsonl", "line 1: 'answer' must be text"),
        ('{"turns": ["x", 3]}\n', "a.jsonl", "line 1: 'turns' must be a list of texts"),
        ('{"messages": []}\n', "a.jsonl", "line 1: 'messages' is a non-empty list"),
        ("[" * 100_000, "a.jsonl", "line 1 is not JSON"),
    ],
)
def test_a_wrong_file_gets_one_sentence(tmp_path: Path, text: str, name: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_items(written(tmp_path, text, name))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_missing_or_binary_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_items(tmp_path / "absent.txt")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_items(tmp_path / "b.txt")


def test_a_prompt_longer_than_the_context_names_its_line(tmp_path: Path) -> None:
    lines = [{"prompt": "w1 w2"}, {"prompt": " ".join(["w3"] * 30)}]
    items = read_items(written(tmp_path, "\n".join(map(json.dumps, lines))))
    with pytest.raises(
        UsageError,
        match=r"line 2: the prompt has 30 tokens and 8 are to follow; the context holds 32",
    ):
        encode(items, word_tokenizer(), 64, 32, 8)
    assert [len(e.ids) for e in encode(items, word_tokenizer(), 64, 64, 8)] == [2, 30]


def test_choosing_by_workload() -> None:
    items = builtin_items()
    assert len(choose(items, 1)) == len({item.workload for item in items}) == 4
    assert {item.workload for item in choose(items, None, ["chat"])} == {"chat"}
    with pytest.raises(UsageError, match="no prompt is of workload 'poetry'"):
        choose(items, None, ["poetry"])
    with pytest.raises(UsageError, match="no built-in workload"):
        builtin_items(["poetry"])
