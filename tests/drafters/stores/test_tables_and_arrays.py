"""n-gram tables and suffix arrays against brute force."""

from __future__ import annotations

import random

import numpy as np

from draftproof.drafters.stores.ngram_tables import (
    GrowingTable,
    StoredTable,
    _hash,
    _hash_one,
    build_tables,
)
from draftproof.drafters.stores.suffix_array import END, SORTED, SuffixArray, build_suffix_array


def after(documents, ngram):
    found: dict[int, int] = {}
    n = len(ngram)
    for text in documents:
        for i in range(len(text) - n):
            if tuple(text[i : i + n]) == tuple(ngram):
                found[text[i + n]] = found.get(text[i + n], 0) + 1
    return found


def documents(seed, alphabet=4):
    rng = random.Random(seed)
    return [[rng.randrange(alphabet) for _ in range(rng.randrange(0, 60))] for _ in range(5)]


def test_a_stored_table_counts_as_by_hand_and_not_across_documents():
    for seed in range(8):
        texts = documents(seed)
        table = StoredTable(build_tables([np.asarray(t, np.int64) for t in texts], least=1))
        rng = random.Random(seed)
        for n in (1, 2, 3, 4):
            for _ in range(40):
                ngram = tuple(rng.randrange(5) for _ in range(n))
                counts = table.counts(ngram)
                assert dict(counts) == after(texts, ngram)
                assert list(counts.values()) == sorted(counts.values())


def test_rare_ngrams_and_rare_followers_are_left_out():
    text = np.asarray([1, 2] * 3 + [1, 3] * 2 + [1, 4, 9, 5])
    table = StoredTable(build_tables([text], least=2, most_tokens=2))
    assert dict(table.counts((1,))) == {2: 3, 3: 2}
    assert table.counts((9,)) == {}
    assert table.counts((77,)) == {}


def test_a_growing_table_is_the_same_and_knows_what_came_last():
    for seed in range(8):
        (text, *_) = documents(seed, 3)
        table = GrowingTable()
        for token in text:
            table.extend([token])
        for n in (1, 2, 3, 4):
            for i in range(len(text) - n + 1):
                ngram = tuple(text[i : i + n])
                assert dict(table.counts(ngram)) == after([text], ngram)
    table = GrowingTable()
    table.extend([1, 5, 1, 6, 1, 5, 1])
    assert list(table.counts((1,))) == [6, 5]


def test_a_growing_table_grows_linearly():
    table = GrowingTable()
    table.extend([i * i % 97 for i in range(2000)])
    assert sum(len(counts) for counts in table._after.values()) <= 4 * 2000


def test_one_ngram_and_many_have_one_hash():
    rows = np.random.default_rng(0).integers(0, 200_000, (50, 4))
    assert [_hash_one(tuple(row)) for row in rows.tolist()] == _hash(rows).tolist()


def test_a_suffix_array_finds_every_occurrence_in_the_order_of_what_follows():
    for seed in range(8):
        texts = documents(seed, 3)
        array = SuffixArray(build_suffix_array([np.asarray(t, np.int64) for t in texts]))
        whole = [token for text in texts for token in (*text, END)]
        rng = random.Random(seed)
        for n in (1, 2, 3, 5):
            for _ in range(20):
                wanted = [rng.randrange(3) for _ in range(n)]
                places = array.occurrences(wanted).tolist()
                assert sorted(places) == [
                    i for i in range(len(whole)) if whole[i : i + n] == wanted
                ]
                following = [whole[p : p + SORTED] for p in places]
                assert following == sorted(following)


def test_the_longest_match_is_the_longest():
    text = [5, 1, 2, 3, 9, 1, 2, 7]
    array = SuffixArray(build_suffix_array([np.asarray(text)]))
    assert array.longest_match([8, 1, 2, 3], 16)[0] == 3
    length, places = array.longest_match([8, 1, 2], 16)
    assert (length, sorted(places.tolist())) == (2, [1, 5])
    assert array.longest_match([1, 2, 3], 2)[0] == 2, "no longer than asked"
    assert array.longest_match([8, 5], 16, least=2)[0] == 0
    assert array.longest_match([], 16)[0] == 0
    assert array.tokens(np.asarray([6, 0]), 5) == [[2, 7, END, END, END], [5, 1, 2, 3, 9]]


def test_an_empty_corpus_and_empty_documents_match_nothing():
    for empty in ([], [np.asarray([], np.int64)]):
        assert SuffixArray(build_suffix_array(empty)).longest_match([1, 2], 16)[0] == 0
        assert StoredTable(build_tables(empty)).counts((1, 2)) == {}


def test_long_repeats_are_sorted_as_far_as_they_are_read():
    text = np.asarray([7] * 300 + [1, 2, 3])
    array = SuffixArray(build_suffix_array([text]))
    assert len(array.occurrences([7] * 20)) == 281
    assert array.longest_match([7] * 40, 16)[0] == 16
