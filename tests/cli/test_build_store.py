"""`draftproof build-store`, and what it makes in `generate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., dict[str, Any]]
Refused = Callable[..., str]
TEXT = "the cat sat on the mat and the dog sat on the cat and the mat sat on the dog " * 3


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_text(TEXT)
    return tmp_path / "corpus.txt"


@pytest.mark.parametrize("method", ["ngram_cache", "retrieval"])
def test_a_store_is_built_and_drafted_from(
    document: Run, target: Path, corpus: Path, tmp_path: Path, method: str
) -> None:
    store = tmp_path / "cats.store"
    told = document("build-store", corpus, "--method", method, "--target", target, "--out", store)
    assert (told["method"], told["documents"], told["bytes"]) == (method, 1, store.stat().st_size)
    config = json.dumps({"method": method, "store": str(store)})
    common = (
        "generate",
        "the cat sat on the",
        "--raw",
        "--max-tokens",
        12,
        "--seed",
        1,
        "--temperature",
        1,
        "--target",
        target,
    )
    got = document(*common, "--speculative-config", config)
    plain = document(*common, "--method", "none")
    assert got["stats"]["method"] == method
    assert got["stats"]["num_draft_tokens"] > 0
    assert got["text"] == plain["text"]


def test_a_damaged_store_is_refused_in_one_sentence(
    document: Run, refused: Refused, target: Path, corpus: Path, tmp_path: Path
):
    store = tmp_path / "cats.store"
    document("build-store", corpus, "--method", "retrieval", "--target", target, "--out", store)
    data = bytearray(store.read_bytes())
    data[-1] ^= 1
    store.write_bytes(bytes(data))
    config = json.dumps({"method": "retrieval", "store": str(store)})
    assert "checksum does not fit" in refused(
        "generate", "the", "--target", target, "--speculative-config", config
    )


def test_what_cannot_be_built_is_refused(
    refused: Refused, target: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "x.store"
    common = ("build-store", corpus, "--target", target, "--out")
    assert "reads no store; allowed: ngram_cache, retrieval" in refused(
        *common, out, "--method", "suffix"
    )
    assert "there is no folder" in refused(*common, tmp_path / "no" / "x", "--method", "retrieval")
    assert "it is a folder" in refused(*common, tmp_path, "--method", "retrieval")
    missing = (
        "build-store",
        tmp_path / "nothing",
        "--target",
        target,
        "--out",
        out,
        "--method",
        "retrieval",
    )
    assert "there is no file or folder" in refused(*missing)
    assert not out.exists()


@pytest.mark.parametrize("method", ["suffix", "ngram_cache", "recycling"])
def test_methods_without_a_store_go_by_name(document: Run, target: Path, method: str) -> None:
    got = document(
        "generate",
        TEXT + "the cat sat on",
        "--raw",
        "--max-tokens",
        16,
        "--temperature",
        0,
        "--target",
        target,
        "--method",
        method,
    )
    assert got["stats"]["method"] == method
    assert got["stats"]["num_draft_tokens"] > 0


def test_retrieval_by_name_alone_says_what_it_needs(refused: Refused, target: Path) -> None:
    assert 'needs "store"' in refused(
        "generate", "the", "--target", target, "--method", "retrieval"
    )
