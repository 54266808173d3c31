"""Stores on disk: they come back as they were, and what is damaged, foreign or of another kind is
refused in one sentence."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof import SpeculativeDecoder, TableModel
from draftproof.drafters.stores.corpus import build_store, corpus_files, read_documents
from draftproof.drafters.stores.files import (
    FORMAT,
    StoreHeader,
    check_fits,
    fingerprint,
    read_store,
    write_store,
)
from draftproof.errors import UsageError

UNIFORM = TableModel([[1 / 8] * 8] * 8, name="uniform")
DOCUMENTS = [[0, 1, 2, 3, 4, 5, 6, 7] * 3, [1, 2, 3] * 4]


class Words:
    """A tokenizer as far as a store knows one."""

    def __init__(self, prefix="w", size=8):
        self.vocabulary = {f"{prefix}{i}": i for i in range(size)}

    def get_vocab(self):
        return self.vocabulary


@pytest.fixture(params=["retrieval", "ngram_cache"])
def kind(request):
    return request.param


@pytest.fixture
def path(tmp_path, kind):
    header, arrays = build_store(kind, DOCUMENTS, Words())
    write_store(tmp_path / "corpus.store", header, arrays)
    return tmp_path / "corpus.store"


def test_a_store_comes_back_as_it_was(path, kind):
    store = read_store(path, kind)
    header, arrays = build_store(kind, DOCUMENTS, Words())
    assert store.header == header == StoreHeader(kind, fingerprint(Words()), 8, 36, 2)
    assert set(store.arrays) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(store.arrays[name], array)
        assert not store.arrays[name].flags.writeable
    assert not [file for file in path.parent.iterdir() if file != path], (
        "nothing unfinished is left behind"
    )


def test_every_changed_byte_is_noticed(path, kind):
    """One byte at a time, in every eighth of the file: in the header, in the arrays, at the end."""
    whole = path.read_bytes()
    for eighth in range(8):
        where = 8 + eighth * (len(whole) - 9) // 7
        path.write_bytes(whole[:where] + bytes([whole[where] ^ 0x11]) + whole[where + 1 :])
        with pytest.raises(UsageError, match="damaged|no store|version|lacks") as refused:
            read_store(path, kind)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_file_cut_short_is_refused(path, kind, kept):
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UsageError, match="damaged or no store"):
        read_store(path, kind)


def test_other_files_are_refused(tmp_path, kind):
    from safetensors.numpy import save_file

    (tmp_path / "text").write_text("{}")
    save_file({"a": np.zeros(3)}, tmp_path / "weights")
    save_file(
        {"a": np.zeros(3)},
        tmp_path / "newer",
        metadata={FORMAT: f'{{"format": "{FORMAT}", "version": 9}}'},
    )
    for name, said in (
        ("text", "damaged or no store"),
        ("weights", "is no store"),
        ("newer", "version 9"),
        ("missing", "No such file"),
        (".", "damaged or no store"),
    ):
        with pytest.raises(UsageError, match=said):
            read_store(tmp_path / name, kind)


def test_a_store_of_the_other_kind_is_refused(path, kind):
    other = {"retrieval": "ngram_cache", "ngram_cache": "retrieval"}[kind]
    with pytest.raises(UsageError, match=f"is a store for method '{kind}'"):
        read_store(path, other)


def test_a_rebuilt_file_is_read_anew(path, kind):
    read_store(path, kind)
    header, arrays = build_store(kind, [[5, 6, 5, 6, 5, 6]], Words())
    write_store(path, header, arrays)
    assert read_store(path, kind).header.num_tokens == 6


def test_other_tokens_are_refused(path, kind):
    store = read_store(path, kind)
    check_fits(store, Words(), 8)
    check_fits(store, None, 8)
    with pytest.raises(UsageError, match="another tokenizer"):
        check_fits(store, Words("v"), 8)
    with pytest.raises(UsageError, match="ids up to 7; the target's go to 5"):
        check_fits(store, None, 6)


def test_the_decoder_reads_it_or_says_what_is_wrong(path, kind):
    config = {"method": kind, "store": str(path)}
    made = SpeculativeDecoder(None, UNIFORM, speculative_config=config)
    assert made.generate([0, 1, 2, 3, 4]).stats.num_draft_tokens > 0
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UsageError, match="damaged or no store"):
        SpeculativeDecoder(None, UNIFORM, speculative_config=config)
    with pytest.raises(UsageError, match="it is the path of a file of draftproof build-store"):
        SpeculativeDecoder(None, UNIFORM, speculative_config={"method": kind, "store": 3})


def test_retrieval_needs_a_store_and_ngram_cache_does_not():
    with pytest.raises(UsageError, match='method "retrieval" needs "store"'):
        SpeculativeDecoder(None, UNIFORM, speculative_config={"method": "retrieval"})
    assert (
        SpeculativeDecoder(
            None, UNIFORM, speculative_config={"method": "ngram_cache"}
        ).drafter.stored
        is None
    )


def test_a_corpus_is_files_folders_and_lines(tmp_path):
    (tmp_path / "in" / ".git").mkdir(parents=True)
    (tmp_path / "in" / "b.txt").write_text("two")
    (tmp_path / "in" / "a.py").write_text("one")
    (tmp_path / "in" / ".git" / "x").write_text("hidden")
    (tmp_path / "lines.jsonl").write_text(
        '{"text": "three\u2028lines"}\n\n{"answer": "four"}\n', encoding="utf-8"
    )
    files = corpus_files([tmp_path / "in", tmp_path / "lines.jsonl"])
    assert [text for file in files for text in read_documents(file)] == [
        "one",
        "two",
        "three\u2028lines",
        "four",
    ]


def test_a_corpus_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "bad.jsonl").write_text('{"text": "x"}\nnot json\n')
    (tmp_path / "other.jsonl").write_text('{"title": "x"}\n')
    (tmp_path / "empty").mkdir()
    for name, said in (
        ("latin", "not UTF-8"),
        ("bad.jsonl", "line 2 is not JSON"),
        ("other.jsonl", "line 1 has no text"),
    ):
        with pytest.raises(UsageError, match=said):
            list(read_documents(tmp_path / name))
    for name in ("empty", "missing"):
        with pytest.raises(UsageError, match="holds no file|no file or folder"):
            corpus_files([tmp_path / name])
    with pytest.raises(UsageError, match="holds no token"):
        build_store("retrieval", [[]], None)
    with pytest.raises(UsageError, match="reads no store; allowed: ngram_cache, retrieval"):
        build_store("suffix", DOCUMENTS, None)
