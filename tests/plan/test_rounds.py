"""Rounds over a text, summed exactly: against closed forms, against every outcome by hand, and
against the decoder itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from draftproof import (
    SamplingParams,
    SpeculativeDecoder,
    TableModel,
    alpha_per_position,
    expected_tokens,
)
from draftproof.core.params import SamplingParams as Params
from draftproof.drafters.ngram import NGram
from draftproof.errors import UsageError
from draftproof.plan.acceptance import Judge
from draftproof.plan.forcing import Text, force, write_texts
from draftproof.plan.replay import replay
from draftproof.plan.rounds import (
    Expected,
    Trace,
    autocorrelation,
    expect,
    kept_shares,
    play,
    trace_of_coins,
)

RNG = np.random.default_rng(5)
TARGET = RNG.dirichlet(np.full(6, 0.7), size=6)
DRAFT = 0.6 * TARGET + 0.4 * RNG.dirichlet(np.full(6, 0.7), size=6)


def test_constant_acceptance_gives_the_formula_on_a_long_text() -> None:
    for alpha, k in ((0.8, 5), (0.3, 2), (1.0, 4), (0.0, 3)):
        found = expect(trace_of_coins(np.full(6000, alpha), np.full(6000, alpha), k), k)
        assert found.tokens_per_round == pytest.approx(float(expected_tokens(alpha, k)), rel=2e-3)


def by_hand(trace: Trace, k: int) -> dict[int, float]:
    """Number of rounds -> chance, over every outcome of every coin; a coin a (round start,
    draft)."""
    n = len(trace.drafted)

    def go(s: int) -> dict[int, float]:
        if s >= n:
            return {0: 1.0}
        found: dict[int, float] = {}
        length = min(int(trace.drafted[s]), k, n - 1 - s)
        going = 1.0
        for accepted in range(length + 1):
            stop = 1.0 if accepted == length else 1 - trace.accept[s, accepted]
            for rounds, chance in go(s + accepted + 1).items():
                found[rounds + 1] = found.get(rounds + 1, 0.0) + going * stop * chance
            if accepted < length:
                going *= trace.accept[s, accepted]
        return found

    return go(0)


def test_the_first_round_emits_its_accepted_drafts_and_one_more() -> None:
    accept = np.array([[0.5, 0.25], [0.9, 0.1], [0.9, 0.1], [0.9, 0.1]])
    found = expect(Trace(accept, np.full(4, 2), np.full(4, 0.5)), 2)
    assert found.first_tokens == pytest.approx(1 + 0.5 + 0.5 * 0.25, abs=1e-15)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_expectation_is_the_sum_over_all_outcomes(k: int) -> None:
    rng = np.random.default_rng(k)
    trace = Trace(rng.random((7, 3)), rng.integers(0, 4, 7), np.full(7, 0.5))
    outcomes = by_hand(trace, k)
    assert sum(outcomes.values()) == pytest.approx(1)
    found = expect(trace, k)
    assert found.num_rounds == pytest.approx(
        sum(rounds * chance for rounds, chance in outcomes.items()), abs=1e-12
    )
    played = [play(trace, k, rng).num_rounds for _ in range(4000)]
    spread = np.std(played) / np.sqrt(len(played))
    assert abs(np.mean(played) - found.num_rounds) <= 5 * spread + 1e-9  # false alarm below 1e-6


def test_rounds_by_drafts_count_the_drafts_that_were_there() -> None:
    trace = Trace(np.zeros((4, 2)), np.array([2, 0, 1, 2]), np.zeros(4))
    found = expect(trace, 2)
    assert isinstance(found, Expected) and found.first_drafts == 2
    # a round at 1 without, at 2 with one; at 3 there is room for none
    assert found.by_drafts.tolist() == [
        2.0,
        1.0,
        0.0,
    ]
    assert found.num_tokens == 4 and found.num_rounds == 4


def test_a_draft_model_catches_up_after_every_draft_was_kept() -> None:
    """Checked against runs of the decoder: rounds that draft after a round which kept all of its
    drafts."""
    target, draft = TableModel(TARGET), TableModel(DRAFT)
    params = SamplingParams(max_tokens=30, seed=3)
    texts = texts_of(target, params, 300)
    forced = force(target, draft, texts, params, [Judge("token")])
    foretold = sum(
        expect(trace_of_coins([c for (c,) in f.chances], f.overlaps, 2), 2).catch_ups
        for f in forced
    )
    decoder = SpeculativeDecoder(
        draft, target, speculative_config={"num_speculative_tokens": 2, "rule": "token"}
    )
    met = 0
    for i in range(300):
        rounds = decoder.generate([i % 6], SamplingParams(max_tokens=30, seed=9000 + i)).rounds
        met += sum(
            bool(b.draft_tokens) and 0 < len(a.draft_tokens) == a.num_accepted_tokens
            for a, b in zip(rounds, rounds[1:], strict=False)
        )
    # both are known to about 3%: a false alarm below 1e-3
    assert foretold == pytest.approx(met, rel=0.15)
    certain = trace_of_coins(np.ones(10), np.ones(10), 1)
    assert expect(certain, 1).catch_ups == play(certain, 1, np.random.default_rng(0)).catch_ups == 4


def test_a_longer_draft_than_recorded_is_refused() -> None:
    with pytest.raises(UsageError, match="go up to 2 drafts, 3 were asked for"):
        expect(trace_of_coins([0.5], [0.5], 2), 3)


def texts_of(target: TableModel, params: SamplingParams, count: int) -> list[Text]:
    return write_texts(target, [(i % 6,) for i in range(count)], params)


def test_answers_in_lockstep_are_plain_decodings() -> None:
    target = TableModel(TARGET)
    params = SamplingParams(max_tokens=12, seed=4)
    plain = SpeculativeDecoder(None, target).plain
    for number, text in enumerate(texts_of(target, params, 10)):
        alone = plain.generate(list(text.prompt), SamplingParams(max_tokens=12, seed=4 + number))
        assert alone.token_ids == text.answer


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_forced_overlaps_are_alpha_per_position(temperature: float) -> None:
    target, draft = TableModel(TARGET), TableModel(DRAFT)
    params = SamplingParams(temperature=temperature, max_tokens=90, seed=1)
    texts = texts_of(target, params, 3)
    for text, forced in zip(
        texts, force(target, draft, texts, params, [Judge("token")]), strict=True
    ):
        alone = alpha_per_position(
            target, draft, (*text.prompt, *text.answer), len(text.prompt), temperature
        )
        assert np.allclose(forced.overlaps, alone, atol=1e-12)
        assert all(0 <= coin <= 1 for (coin,) in forced.chances)


@pytest.mark.parametrize("k", [1, 3])
def test_a_prediction_from_the_targets_own_text_is_what_the_decoder_does(k: int) -> None:
    """Mean tokens a round over 400 texts of 20 tokens, foretold and decoded: both means are known
    to about 0.5%, so a gap of 5% has a false alarm below 1e-5."""
    target, draft = TableModel(TARGET), TableModel(DRAFT)
    params = SamplingParams(max_tokens=20, seed=11)
    texts = texts_of(target, params, 400)
    forced = force(target, draft, texts, params, [Judge("token")])
    traces = [trace_of_coins([c for (c,) in f.chances], f.overlaps, k) for f in forced]
    foretold = sum(e.num_tokens for e in (expect(t, k) for t in traces)) / sum(
        expect(t, k).num_rounds for t in traces
    )
    decoder = SpeculativeDecoder(
        draft, target, speculative_config={"num_speculative_tokens": k, "rule": "token"}
    )
    results = [
        decoder.generate([i % 6], SamplingParams(max_tokens=20, seed=5000 + i)) for i in range(400)
    ]
    decoded = sum(len(r.token_ids) for r in results) / sum(len(r.rounds) for r in results)
    assert foretold == pytest.approx(decoded, rel=0.05)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_replayed_lookup_makes_the_very_rounds_of_the_decoder(temperature: float, k: int) -> None:
    """With `match` the decoder emits plain decoding's text, so the replay must count its rounds
    exactly."""
    target = TableModel(TARGET)
    params = SamplingParams(temperature=temperature, max_tokens=40, seed=2)
    decoder = SpeculativeDecoder(NGram(), target, speculative_config={"num_speculative_tokens": k})
    for number in range(6):
        prompt = (0, 1, 2, 0, 1)
        run = Params(temperature=temperature, max_tokens=40, seed=2 + number)
        result = decoder.generate(list(prompt), run)
        trace = replay(NGram(), target, Text(prompt, result.token_ids), params, 5)
        found = expect(trace, k)
        assert found.num_rounds == len(result.rounds)
        later = [len(r.draft_tokens) for r in result.rounds[1:]]
        assert found.by_drafts.tolist() == [float(later.count(n)) for n in range(k + 1)]


def test_autocorrelation_of_stretches_and_of_alternation() -> None:
    assert autocorrelation([0.0] * 20 + [1.0] * 20) == pytest.approx(0.93, abs=0.05)
    assert autocorrelation([0.0, 1.0] * 20) == pytest.approx(-1, abs=0.05)
    assert autocorrelation([0.5] * 10) is None and autocorrelation([1.0, 0.0]) is None


def test_all_outcomes_agree_for_every_small_trace() -> None:
    for bits in itertools.product((0.0, 0.5, 1.0), repeat=3):
        trace = trace_of_coins(bits, bits, 2)
        assert expect(trace, 2).num_rounds == pytest.approx(
            sum(r * c for r, c in by_hand(trace, 2).items()), abs=1e-12
        )


def test_a_later_ratio_does_not_make_up_for_an_earlier_one() -> None:
    """Of `block`: what is kept up to i has the smallest running product so far, 0.5 here, though
    the next one is 1."""
    kept = kept_shares(np.array([[0.5, 2.0, 0.5], [2.0, 0.25, 3.0]]))
    np.testing.assert_allclose(kept, [[0.5, 1.0, 1.0], [1.0, 0.5, 1.0]], atol=1e-15)
