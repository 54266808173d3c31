"""Prompt lookup: which match wins, how far the copy goes, and that it looks only where it
should."""

from __future__ import annotations

import random

import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.chance import KeyedChance
from draftproof.core.pipeline import LawPipeline
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.ngram import NGram
from draftproof.drafters.protocol import Request
from draftproof.errors import UsageError

UNIFORM = TableModel([[1 / 64] * 64] * 64)


def proposal(context, depth=8, longest=3, shortest=1, session=None, **params):
    sampling = SamplingParams(**params)
    laws = LawPipeline(sampling, num_prompt_tokens=len(context), vocab_size=64)
    session = session or NGram(longest, shortest).open(
        Request(tuple(context), sampling, laws, UNIFORM)
    )
    draft = DraftBuilder(KeyedChance((0, 0), len(context)), depth=depth, vocab_size=64)
    session.propose(context, draft)
    return draft.build().tokens


@pytest.mark.parametrize(
    "context, expected",
    [
        (
            [27, 27, 5, 1, 27, 27, 6, 2, 27, 27, 7, 3, 27, 27],
            (7, 3, 27, 27),
        ),  # vllm#40875: the most recent of equals
        (
            [1, 2, 3, 9, 8, 2, 3, 7, 1, 2, 3],
            (9, 8, 2, 3),
        ),  # the longest suffix before the most recent
        ([5, 6, 7], ()),
        ([4], ()),
        ([4, 4], (4, 4, 4, 4)),  # a period goes on into the draft
        ([1, 2, 1, 2, 1], (2, 1, 2, 1)),
    ],
)
def test_which_match_wins_and_how_far_it_goes(context, expected):
    assert proposal(context, depth=4) == expected


def test_the_shortest_suffix_can_be_raised():
    context = [1, 2, 9, 3, 2]
    assert proposal(context, shortest=1) != ()
    assert proposal(context, shortest=2) == ()


def test_an_index_grown_step_by_step_finds_what_a_fresh_one_finds():
    rng = random.Random(0)
    for _ in range(30):
        context = [rng.randrange(4) for _ in range(6)]
        sampling = SamplingParams()
        laws = LawPipeline(sampling, num_prompt_tokens=6, vocab_size=64)
        grown = NGram(3, 1).open(Request(tuple(context), sampling, laws, UNIFORM))
        for _ in range(25):
            assert proposal(context, session=grown) == proposal(context) == brute_force(context, 8)
            context = context + [rng.randrange(4) for _ in range(rng.randrange(1, 4))]


def brute_force(context, depth):
    """The documented rule, without an index."""
    for n in range(min(3, len(context) - 1), 0, -1):
        for end in range(len(context) - 1, n - 1, -1):
            if context[end - n : end] == context[-n:]:
                copied = list(context)
                for i in range(depth):
                    copied.append(copied[end + i])
                return tuple(copied[len(context) :])
    return ()


@pytest.mark.parametrize(
    "forbidden",
    [{"suppress_tokens": [9]}, {"bad_words_ids": [[8, 9]]}, {"logit_bias": {9: -float("inf")}}],
)
def test_the_copy_ends_before_what_the_parameters_forbid(forbidden):
    assert proposal([1, 8, 9, 3, 1], **forbidden) == (8,)


def test_rounds_without_a_match_are_rounds_without_a_draft():
    chain = TableModel([[1.0 if j == (i + 1) % 64 else 0.0 for j in range(64)] for i in range(64)])
    stats = (
        SpeculativeDecoder(None, chain, speculative_config={"method": "ngram"})
        .generate([0], SamplingParams(max_tokens=20))
        .stats
    )
    assert (stats.num_drafts, stats.num_rounds, stats.tokens_per_round) == (0, 20, 1.0)


@pytest.mark.parametrize("longest, shortest", [(0, 0), (2, 3), (1, 0)])
def test_impossible_ranges_are_refused(longest, shortest):
    with pytest.raises(UsageError, match="1 <= min <= max"):
        NGram(longest, shortest)


def first_match(context, longest, shortest):
    """What follows the longest suffix that occurred before, its latest occurrence: one token."""
    for n in range(min(longest, len(context) - 1), shortest - 1, -1):
        for end in range(len(context) - 1, n - 1, -1):
            if context[end - n : end] == context[-n:]:
                return (context[end],)
    return ()


@pytest.mark.parametrize("longest, shortest", [(12, 1), (12, 8), (12, 10), (40, 3), (9, 9), (8, 8)])
def test_suffixes_longer_than_the_index_are_found_as_by_first_match(longest, shortest):
    rng = random.Random(1)
    found = 0
    for _ in range(60):
        block = [rng.randrange(3) for _ in range(14)]
        context = [
            *block,
            *(rng.randrange(3) for _ in range(20)),
            *block,
            5,
            *block[rng.randrange(12) :],
        ]
        expected = first_match(context, longest, shortest)
        assert proposal(context, depth=1, longest=longest, shortest=shortest) == expected
        found += bool(expected)
    assert found > 5


def test_the_index_does_not_grow_with_the_suffix():
    text = [i % 7 for i in range(400)]
    sampling = SamplingParams()
    laws = LawPipeline(sampling, num_prompt_tokens=400, vocab_size=64)
    sizes = []
    for longest in (8, 1000):
        session = NGram(longest, 1).open(Request(tuple(text), sampling, laws, UNIFORM))
        proposal(text, session=session)
        sizes.append(sum(len(key) * len(places) for key, places in session._after.items()))
    assert sizes[0] == sizes[1]
