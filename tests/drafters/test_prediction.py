"""Predicted Outputs: what is drafted, that the text stays the target's, and what is refused."""

from __future__ import annotations

import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.errors import UsageError
from tiny import llama

CYCLE = TableModel([[1.0 if j == (i + 1) % 8 else 0.0 for j in range(8)] for i in range(8)])
LOOSE = TableModel([[0.65 if j == (i + 1) % 8 else 0.05 for j in range(8)] for i in range(8)])
ANSWER = [token % 8 for token in range(1, 41)]


def decoder(target=CYCLE, **config):
    return SpeculativeDecoder(None, target, speculative_config={"method": "prediction"} | config)


def rounds_of(prediction, target=CYCLE, **config):
    params = SamplingParams(temperature=0, max_tokens=40, prediction=prediction)
    result = decoder(target, **config).generate([0], params)
    assert list(result.token_ids) == ANSWER
    return result.stats


def test_an_answer_that_comes_as_predicted_takes_few_passes():
    stats = rounds_of(ANSWER)
    assert stats.num_rounds == 3 and stats.method == "prediction"
    assert stats.draft_acceptance_rate == 1.0


@pytest.mark.parametrize(
    "prediction",
    [
        [*ANSWER[:10], *ANSWER[13:]],
        [*ANSWER[:10], 0, 0, 0, *ANSWER[10:]],
        [*ANSWER[:10], 7, 7, *ANSWER[12:]],
    ],
)
def test_edits_cost_a_few_rounds(prediction):
    assert rounds_of(prediction).num_rounds <= 8


def test_a_wrong_prediction_is_only_slow():
    assert rounds_of([7] * 40).num_rounds >= 30


def test_without_a_prediction_nothing_is_drafted():
    assert rounds_of(None).num_draft_tokens == 0
    assert rounds_of([]).num_draft_tokens == 0


@pytest.mark.parametrize("seed", range(5))
def test_sampled_text_for_a_seed_is_plain_decodings(seed):
    made = decoder(LOOSE)
    params = SamplingParams(max_tokens=40, seed=seed, prediction=ANSWER)
    result = made.generate([0], params)
    assert result.token_ids == made.plain.generate([0], params).token_ids
    assert result.stats.num_accepted_tokens > 0


def test_rows_of_a_batch_have_predictions_of_their_own():
    params = [
        SamplingParams(temperature=0, max_tokens=40, prediction=one)
        for one in (ANSWER, None, [7] * 40)
    ]
    results = decoder().generate([[0], [0], [0]], params)
    assert [list(one.token_ids) for one in results] == [ANSWER] * 3
    assert results[0].stats.num_rounds < results[1].stats.num_rounds == 40


def test_forbidden_tokens_end_the_draft():
    params = SamplingParams(temperature=0, max_tokens=20, prediction=ANSWER, suppress_tokens=[5])
    made = decoder(LOOSE)
    result = made.generate([0], params)
    assert result.token_ids == made.plain.generate([0], params).token_ids
    assert all(5 not in record.draft_tokens for record in result.rounds)


def test_auto_drafts_from_it_where_it_is_given():
    costs = {"verify": {"1": 1.0, "17": 1.2}, "draft": 0.0}
    made = decoder(
        drafters=["suffix", "prediction"],
        method="auto",
        costs={"suffix": costs, "prediction": costs},
    )
    novel = [3, 1, 4, 1, 5, 2, 6, 5, 3, 0]
    target = TableModel(
        lambda prefix: [float(j == (novel * 2)[len(prefix) - 1]) for j in range(8)], vocab_size=8
    )
    made = SpeculativeDecoder(None, target, speculative_config=made.config)
    params = SamplingParams(temperature=0, max_tokens=10)
    alone = made.generate([0], params)
    helped = made.generate([0], SamplingParams(temperature=0, max_tokens=10, prediction=novel))
    assert list(alone.token_ids) == list(helped.token_ids) == novel
    assert helped.stats.num_rounds < alone.stats.num_rounds


def test_a_string_is_turned_into_ids():
    class Letters:
        def encode(self, text, add_special_tokens=False):
            return [ord(letter) - ord("a") for letter in text]

        def decode(self, ids, **options):
            return "".join(chr(ord("a") + one) for one in ids)

    resolved = SamplingParams(prediction="abba", bad_words=["c"]).resolve(Letters())
    assert resolved.prediction == (0, 1, 1, 0) and resolved.bad_words == ()


@pytest.mark.parametrize(
    "prediction, made, sentence",
    [
        ("text", decoder, "needs a tokenizer"),
        ([9], decoder, "ids go from 0 to 7"),
        (
            [0],
            lambda: SpeculativeDecoder(None, CYCLE, speculative_config={"method": "ngram"}),
            "this is 'ngram'",
        ),
        ([0], lambda: SpeculativeDecoder(None, CYCLE), "this is 'none'"),
    ],
)
def test_what_cannot_be_honoured_is_refused(prediction, made, sentence):
    with pytest.raises(UsageError, match=sentence):
        made().generate([0], SamplingParams(max_tokens=4, prediction=prediction))


def test_on_a_real_layout_greedy_text_is_plain_decodings():
    model = llama(vocab_size=32)
    from draftproof.models.hf import HFModel

    made = decoder(HFModel(model, name="tiny"))
    plain = made.plain.generate([1, 2, 3], SamplingParams(temperature=0, max_tokens=24))
    edited = [*plain.token_ids[:8], 30, *plain.token_ids[10:]]
    result = made.generate(
        [1, 2, 3], SamplingParams(temperature=0, max_tokens=24, prediction=edited)
    )
    assert result.token_ids == plain.token_ids
    assert result.stats.num_rounds < 16
