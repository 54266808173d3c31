"""Draft and target are compared token by token, not by the sizes of their output layers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from draftproof.errors import VocabularyMismatchError
from draftproof.models.hf import HFModel
from draftproof.models.protocol import Step, extend
from draftproof.models.vocabulary import align_logits, check_same_tokens
from tiny import llama, word_tokenizer


def test_padded_output_layers_emit_only_real_tokens():
    tokenizer = word_tokenizer(64)
    padded = HFModel(llama(vocab_size=80), tokenizer)
    exact = HFModel(llama(vocab_size=64), tokenizer)
    assert padded.vocab_size == exact.vocab_size == 64
    assert extend(Step(padded.open(), [1, 2])).logits.shape == (2, 64)
    check_same_tokens(padded.tokenizer, exact.tokenizer, 64, 64)
    assert HFModel(llama(vocab_size=80)).vocab_size == 80
    assert HFModel(llama(vocab_size=48), tokenizer).vocab_size == 48


def test_the_same_tokenizer_and_equal_copies_pass():
    tokenizer = word_tokenizer()
    for other in (tokenizer, copy.deepcopy(tokenizer), word_tokenizer()):
        check_same_tokens(tokenizer, other, 64, 64)


def test_ids_only_one_side_knows_are_no_mismatch():
    check_same_tokens(word_tokenizer(64), word_tokenizer(70), 64, 70)
    check_same_tokens(word_tokenizer(70), word_tokenizer(64), 70, 64)
    longer = word_tokenizer(64)
    longer.add_tokens(["<extra>"])
    check_same_tokens(longer, word_tokenizer(64), 65, 80)


def test_two_swapped_ids_are_named_with_their_tokens():
    said = r"id 5 is 'w5' and 'w9'; 9 is 'w9' and 'w5'; say \"use_heterogeneous_vocab\": true"
    with pytest.raises(VocabularyMismatchError, match=said):
        check_same_tokens(word_tokenizer(), word_tokenizer(swapped=(5, 9)), 64, 64)


def test_an_entirely_other_tokenizer_is_called_so():
    with pytest.raises(
        VocabularyMismatchError,
        match=r"another tokenizer altogether \(64 of 64 ids.*use_heterogeneous_vocab",
    ):
        check_same_tokens(word_tokenizer(), word_tokenizer(prefix="v"), 64, 64)


@pytest.mark.parametrize(
    "tokenizers", [(None, None), (word_tokenizer(), None), (None, word_tokenizer())]
)
def test_without_both_tokenizers_sizes_may_differ_by_padding(tokenizers):
    check_same_tokens(*tokenizers, 64, 80)
    check_same_tokens(*tokenizers, 152064, 151936)
    with pytest.raises(VocabularyMismatchError, match="32000 tokens and the draft model 151936"):
        check_same_tokens(*tokenizers, 32000, 151936)
    with pytest.raises(VocabularyMismatchError, match="more than padding"):
        check_same_tokens(*tokenizers, 64, 200)


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
def test_align_logits(xp):
    logits = xp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert align_logits(logits, 3) is logits
    assert align_logits(logits, 2).tolist() == [[1.0, 2.0], [4.0, 5.0]]
    filled = align_logits(logits, 5)
    assert filled.shape == (2, 5) and filled.dtype == logits.dtype
    assert filled[:, :3].tolist() == logits.tolist() and bool((filled[:, 3:] == -xp.inf).all())
