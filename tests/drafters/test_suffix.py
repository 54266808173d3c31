"""Suffix decoding: how long, how sure, how much of the depth; and a memory only where one was asked
for."""

from __future__ import annotations

import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.chance import KeyedChance
from draftproof.core.pipeline import LawPipeline
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.protocol import Request
from draftproof.drafters.suffix import Suffix
from draftproof.errors import UsageError

SIZE = 64
CYCLE = TableModel(
    [[1.0 if j == (i + 1) % SIZE else 0.0 for j in range(SIZE)] for i in range(SIZE)], name="cycle"
)
PARAMS = SamplingParams()
LAWS = LawPipeline(PARAMS, num_prompt_tokens=1, vocab_size=SIZE)


def proposal(context, depth=24, **options):
    session = Suffix(**options).open(Request(tuple(context), PARAMS, LAWS, CYCLE))
    draft = DraftBuilder(
        KeyedChance((0, 0), len(context)),
        depth=depth,
        vocab_size=SIZE,
        max_nodes=64 if "tree" in options else None,
    )
    session.propose(context, draft)
    return draft.build()


def test_a_longer_match_drafts_more():
    text = list(range(20))
    for matched in (1, 2, 5):
        assert len(proposal([*text, 50, *text[:matched]]).tokens) == matched
    assert proposal([*text, 50, 0, 1, 2]).tokens == (3, 4, 5)
    assert len(proposal([*text, 50, 0, 1, 2], max_spec_factor=2.0).tokens) == 6
    assert proposal([*text, 50, 0, 1, 2], max_spec_factor=0.0).tokens == ()


def test_match_and_draft_share_the_depth():
    """Of a match of 20 tokens with depth 24 the last 12 are used, and 12 are drafted, rather than
    all 20 and 4."""
    text = list(range(60))
    assert len(proposal([*text, 63, *text[:20]]).tokens) == 12
    assert len(proposal([*text, 63, *text[:20]], max_tree_depth=8).tokens) == 4
    assert proposal([*text, 63, *text[:20]], depth=3).tokens == (20, 21, 22)


def test_the_likelier_path_is_taken_and_a_doubtful_one_is_cut():
    context = [1, 2, 3, 9, 7, 1, 2, 3, 8, 6, 1, 2, 4, 9, 5, 1, 2]
    assert proposal(context).tokens == (3, 8), (
        "3 followed twice of three times; after it 8 is the more recent"
    )
    assert proposal(context, min_token_prob=0.5).tokens == (3,)
    assert proposal(context, min_token_prob=0.7).tokens == ()


def test_of_equal_counts_the_more_recent_wins():
    assert (
        proposal([27, 27, 5, 1, 27, 27, 6, 2, 27, 27, 7, 3, 27, 27], min_token_prob=0.0).tokens[0]
        == 7
    )


def test_of_equal_sums_the_longer_match_wins():
    """After 1, 2, 3 came 4 and 5, after 2, 3 also 6 twice: half of the counts each way, one token
    each."""
    context = [1, 2, 3, 4, 20, 1, 2, 3, 5, 21, 9, 2, 3, 6, 22, 8, 2, 3, 6, 23, 1, 2, 3]
    assert proposal(context, max_spec_factor=0.5).tokens == (5,)


def test_a_tree_spends_its_nodes_on_the_likeliest_paths():
    context = [1, 2, 3, 9, 7, 1, 2, 3, 8, 6, 1, 2, 4, 9, 5, 1, 2]
    draft = proposal(context, tree=True, max_spec_factor=2.0)
    assert (draft.tokens, draft.parents) == ((3, 4, 9, 5), (-1, -1, 1, 2))


@pytest.mark.parametrize("context", [[], [5], [5, 6, 7]])
def test_nothing_repeats_nothing_is_drafted(context):
    if context:
        assert proposal(context).tokens == ()


def decoder(**options):
    return SpeculativeDecoder(
        Suffix(**options), CYCLE, speculative_config={"num_speculative_tokens": 12}
    )


def counts(made, prompt):
    stats = made.generate(prompt, SamplingParams(max_tokens=20)).stats
    return stats.num_rounds, stats.num_draft_tokens, stats.num_accepted_tokens


def test_without_a_shared_store_no_request_helps_the_next():
    made = decoder()
    first = counts(made, [3])
    assert [counts(made, [3]), counts(made, [40]), counts(made, [3])] == [first] * 3
    assert first[2] == 0


def test_a_shared_store_helps_when_asked_for_and_stays_within_its_cap():
    made = decoder(max_cached_requests=4)
    cold = counts(made, [3])
    warm = counts(made, [3])
    assert cold == counts(decoder(), [3])
    assert warm[0] < cold[0] and warm[2] > 10
    for start in range(0, 60, 2):
        counts(made, [start])
    assert made.drafter.shared.num_requests <= 4


def test_a_tree_is_refused_where_the_target_reads_none():
    class Chains(TableModel):
        supports_trees = False

    target = Chains([[0.5, 0.5], [0.5, 0.5]])
    config = {"method": "suffix", "suffix_decoding_use_tree": True}
    with pytest.raises(
        UsageError, match="cannot read a tree in one pass: leave suffix_decoding_use_tree out"
    ):
        SpeculativeDecoder(None, target, speculative_config=config)


def test_the_keys_are_vllms():
    made = SpeculativeDecoder(
        None,
        CYCLE,
        speculative_config={
            "method": "suffix",
            "suffix_decoding_max_tree_depth": 16,
            "suffix_decoding_max_cached_requests": 7,
            "suffix_decoding_max_spec_factor": 2,
            "suffix_decoding_min_token_prob": 0.2,
        },
    )
    drafter = made.drafter
    assert (drafter.max_tree_depth, drafter.max_spec_factor, drafter.min_token_prob) == (
        16,
        2.0,
        0.2,
    )
    assert drafter.shared is not None
    assert made.config.num_speculative_tokens == 16, "the depth, as in vLLM"
    assert (
        SpeculativeDecoder(None, CYCLE, speculative_config={"method": "suffix"}).drafter.shared
        is None
    )


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("suffix_decoding_max_tree_depth", 0, "a whole number from 1"),
        ("suffix_decoding_max_cached_requests", -1, "a whole number from 0"),
        ("suffix_decoding_max_spec_factor", -0.5, "a number from 0"),
        ("suffix_decoding_max_spec_factor", float("inf"), "a number from 0"),
        ("suffix_decoding_min_token_prob", 1.5, "a number from 0 to 1"),
        ("suffix_decoding_use_tree", "yes", "true and false"),
    ],
)
def test_impossible_values_are_refused(key, value, said):
    with pytest.raises(UsageError, match=said):
        SpeculativeDecoder(None, CYCLE, speculative_config={"method": "suffix", key: value})


def test_a_shape_is_refused():
    with pytest.raises(UsageError, match="takes no tree of a given shape"):
        SpeculativeDecoder(None, CYCLE, speculative_config={"method": "suffix", "tree": "2,1"})
