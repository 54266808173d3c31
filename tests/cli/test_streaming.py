"""What a terminal gets while the text grows: whole characters only, and nothing lost when the run
is cut off."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

import tiny
from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.cli import main as cli
from draftproof.cli import show
from draftproof.decode.record import read_rounds

TEXT = "é😀中文"  # 2, 4, 3 and 3 bytes, all different, so that each byte can name the next
VOCAB = 304
Document = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def speller(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Path:
    """A model that spells TEXT byte by byte, over and over."""
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    assert len(ids) == len(TEXT.encode()) == len(set(ids))
    table = torch.zeros(VOCAB, VOCAB)
    table[:, ids[0]] = 30.0
    for this, following in zip(ids, ids[1:] + ids[:1], strict=True):
        table[this, ids[0]] = 0.0
        table[this, following] = 30.0
    folder = tmp_path_factory.mktemp("speller")
    tiny.table_model(table).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_characters_are_never_split(
    speller: Path,
    length: int,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pieces: list[str] = []
    monkeypatch.setattr(show.Writer, "_write", lambda self, text: pieces.append(text))
    draft = ("--draft", str(speller)) if method == "draft_model" else ("--method", "ngram")
    flags = (
        "generate",
        "中",
        "--raw",
        "--target",
        str(speller),
        *draft,
        "-k",
        str(length),
        "--temperature",
        "0",
    )
    assert cli.run([*flags, "--max-tokens", str(2 * len(TEXT.encode()) - 3)]) == 0
    assert "".join(pieces) == (TEXT[3:] + 2 * TEXT)[: 2 * len(TEXT) - 1] + "\n"
    assert all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize("count", range(1, 13))
def test_a_text_that_ends_inside_a_character_says_so_at_its_end_only(
    speller: Path, document: Document, count: int
) -> None:
    flags = (
        "generate",
        "文",
        "--raw",
        "--target",
        speller,
        "--draft",
        speller,
        "-k",
        3,
        "--temperature",
        0,
        "--max-tokens",
        count,
    )
    got = document(*flags)
    whole = TEXT.encode()[:count].decode(errors="ignore")
    assert got["text"].startswith(whole)
    assert set(got["text"][len(whole) :]) <= {"\ufffd"}
    assert (got["text"] == whole) == (count in (2, 6, 9, 12))


def test_streamed_pieces_join_to_the_result(speller: Path) -> None:
    config = {"method": "draft_model", "model": str(speller), "num_speculative_tokens": 4}
    decoder = SpeculativeDecoder.from_pretrained(str(speller), speculative_config=config)
    for count in range(1, 16):
        stream = decoder.stream("文", SamplingParams(temperature=0, max_tokens=count))
        pieces = []
        while True:
            try:
                pieces.append(next(stream))
            except StopIteration as done:
                assert "".join(piece.text for piece in pieces) == done.value.text
                break
        assert all("\ufffd" not in piece.text for piece in pieces[:-1])


def test_an_interrupted_run_ends_with_130_and_keeps_its_rounds(
    target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[str] = []

    def interrupt(self: show.Writer, text: str, origin: str, index: int = 0) -> None:
        seen.append(text)
        if len(seen) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(show.Writer, "piece", interrupt)
    path = tmp_path / "rounds.jsonl"
    flags = (
        "generate",
        "the cat",
        "--target",
        str(target),
        "--method",
        "none",
        "--record",
        str(path),
    )
    assert cli.run(list(flags)) == 130
    header, rounds = read_rounds(path)
    assert header.method == "none" and len(rounds) == 3


def test_a_reader_that_went_away_ends_the_run(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def fileno(self) -> int:
            return descriptor

    import os

    reading, descriptor = os.pipe()
    os.close(reading)
    monkeypatch.setattr("sys.stdout", Closed())
    try:
        assert cli.run(["generate", "the cat", "--target", str(target), "--max-tokens", "4"]) == 141
    finally:
        os.close(descriptor)
