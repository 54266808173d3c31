"""The simulated decoder: what a round emits, what a generation counts, and the law of its
tokens."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof.core.formulas import acceptance_rate, expected_tokens, round_length_law
from draftproof.costs.verify_curve import VerifyCurve
from draftproof.errors import UsageError
from draftproof.simulate.decoder import SimulatedSpeculativeDecoder

KEYS = {
    "tokens",
    "rounds",
    "speculative_time_ms",
    "standard_time_ms",
    "speedup",
    "tokens_per_round",
}


def test_defaults() -> None:
    decoder = SimulatedSpeculativeDecoder()
    assert decoder.acceptance_rate == 0.75 and decoder.vocab_size == 1000
    assert 1 <= decoder.simulate_round() <= 6
    assert decoder.simulate_generation(100)["standard_time_ms"] == 10_000


def test_the_bonus_is_emitted_and_accepted_is_not_emitted() -> None:
    sure, never = SimulatedSpeculativeDecoder(1.0), SimulatedSpeculativeDecoder(0.0)
    assert sure.simulate_round(5) == 6 and never.simulate_round(5) == 1
    assert sure.draw_round(5).accepted == 5 and never.draw_round(5).accepted == 0
    assert SimulatedSpeculativeDecoder(0.3).simulate_round(0) == 1


def test_a_generation_by_hand() -> None:
    """Rate 1 with 5 drafts emits 6 a round: 100 tokens need 17 rounds, the last one cut to 4."""
    found = SimulatedSpeculativeDecoder(1.0).simulate_generation(
        100, 5, draft_time_ms=5, target_time_ms=100
    )
    assert found.keys() >= KEYS
    assert found["tokens"] == 100 and found["rounds"] == 17
    assert found["speculative_time_ms"] == 17 * 125 and found["standard_time_ms"] == 10_000
    assert found["speedup"] == pytest.approx(10_000 / (17 * 125)) and found[
        "tokens_per_round"
    ] == pytest.approx(100 / 17)
    assert found["drafted"] == 85 and found["accepted"] == 16 * 5 + 4
    assert found["draft_acceptance_rate"] == pytest.approx(84 / 85)


def test_nothing_accepted_is_slower_than_plain_decoding() -> None:
    found = SimulatedSpeculativeDecoder(0.0).simulate_generation(10, 5)
    assert (
        found["rounds"] == 10
        and found["accepted"] == 0
        and found["speedup"] == pytest.approx(1 / 1.25)
    )


def test_no_drafts_is_plain_decoding() -> None:
    found = SimulatedSpeculativeDecoder(0.5).simulate_generation(10, 0)
    assert (
        found["speedup"] == 1 and found["rounds"] == 10 and np.isnan(found["draft_acceptance_rate"])
    )


def test_the_verify_curve_is_paid_for() -> None:
    curve = VerifyCurve((1, 6), (1.0, 2.9))
    found = SimulatedSpeculativeDecoder(1.0).simulate_generation(60, 5, 11, 100, curve)
    assert found["speculative_time_ms"] == pytest.approx(10 * (55 + 290))


@pytest.mark.parametrize("total", [1, 2, 7, 100])
def test_exactly_the_tokens_asked_for(total: int) -> None:
    for seed in range(20):
        found = SimulatedSpeculativeDecoder(0.8, seed=seed).simulate_generation(total, 5)
        assert (
            found["tokens"] == total
            and found["accepted"] + found["rounds"] >= total >= found["accepted"]
        )


def test_randomness_comes_from_the_seed_alone() -> None:
    runs = [
        SimulatedSpeculativeDecoder(0.7, seed=seed).simulate_generation(500) for seed in (3, 3, 4)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_round_lengths_have_their_law() -> None:
    """20,000 rounds in six classes; chi-square with 5 degrees of freedom is above 25.7 in 1 of
    10,000 exact samples. A rate off by 0.02 gives more than 60 on average."""
    decoder = SimulatedSpeculativeDecoder(0.75, seed=1)
    found = np.bincount([decoder.simulate_round(5) for _ in range(20_000)], minlength=7)[1:]
    wanted = 20_000 * round_length_law(0.75, 5)
    assert ((found - wanted) ** 2 / wanted).sum() < 25.7


def test_the_pair_of_laws_has_the_overlap_asked_for() -> None:
    for rate, vocab in ((0.0, 2), (0.75, 1000), (0.3, 7), (1.0, 1)):
        decoder = SimulatedSpeculativeDecoder(rate, vocab)
        assert decoder.target_law.sum() == pytest.approx(1) and decoder.draft_law.shape in (
            (vocab,),
        )
        if vocab > 1:
            assert acceptance_rate(decoder.target_law, decoder.draft_law) == pytest.approx(rate)


def test_tokens_follow_the_target_law() -> None:
    """About 70,000 tokens over 5 ids; chi-square with 4 degrees of freedom is above 23.5 in 1 of
    10,000 exact samples. A replacement drawn from the whole vocabulary shifts a tenth of the mass
    and gives thousands."""
    decoder = SimulatedSpeculativeDecoder(0.7, 5, seed=2)
    tokens = np.concatenate([decoder.draw_round(4).tokens for _ in range(25_000)])
    wanted = len(tokens) * decoder.target_law
    assert len(tokens) / 25_000 == pytest.approx(expected_tokens(0.7, 4), rel=0.02)
    assert ((np.bincount(tokens, minlength=5) - wanted) ** 2 / wanted).sum() < 23.5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"acceptance_rate": 1.5}, "alpha must be between 0 and 1, got 1.5"),
        ({"vocab_size": 0}, "vocab_size must be a whole number of at least 1, got 0"),
        ({"vocab_size": 1}, "vocab_size 1 leaves a single law"),
    ],
)
def test_a_decoder_that_cannot_be(arguments: dict[str, float], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        SimulatedSpeculativeDecoder(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"total_tokens": 0}, "total_tokens must be a whole number of at least 1"),
        ({"num_draft": -1}, "num_draft must be a whole number of at least 0"),
        ({"draft_time_ms": -1}, "draft_time_ms must be at least 0"),
        ({"target_time_ms": 0}, "target_time_ms must be greater than 0"),
    ],
)
def test_a_generation_that_cannot_be(arguments: dict[str, float], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        SimulatedSpeculativeDecoder().simulate_generation(**{"total_tokens": 10, **arguments})  # type: ignore[arg-type]
