"""The monitor: silent over exact decoding, loud over wrong rules, and plain about what it cannot
test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.mutants import CHAIN_MUTANTS
from draftproof.decode.monitor import MonitoredRule
from draftproof.errors import UsageError

TARGET = TableModel([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
DRAFT = TableModel([[0.2, 0.5, 0.3], [0.5, 0.2, 0.3], [0.4, 0.5, 0.1]])
PARAMS = SamplingParams(max_tokens=600, seed=0)


def decoder(**config) -> SpeculativeDecoder:
    return SpeculativeDecoder(
        DRAFT, TARGET, speculative_config={"num_speculative_tokens": 3} | config
    )


@pytest.mark.parametrize(
    "config",
    [
        {"rule": "token"},
        {"rule": "block"},
        {"rule": "match"},
        {"tree": "2,1", "num_speculative_tokens": 2, "rule": "rrs"},
        {"rule": "gumbel"},
    ],
)
def test_exact_decoding_gives_nothing_away_and_its_text_stays_what_it_was(config):
    """False alarm: 1e-3 a rule."""
    made = decoder(**config)
    watched = made.generate((0,), PARAMS, monitor=True)
    assert watched.token_ids == made.generate((0,), PARAMS).token_ids
    seen = watched.stats.monitor
    assert seen["exact"] is True and seen["num_tokens"] >= 600
    assert made.generate((0,), PARAMS).stats.monitor is None


@pytest.mark.parametrize(
    "name",
    [
        "correction from the target's law, no residual",
        "ratio inverted",
        "bonus at another temperature",
    ],
)
def test_wrong_rules_are_seen_by_the_tokens(name):
    """6,000 tokens; power above 0.99 but for the bonus, which the acceptance sees no better: that
    one must stay in doubt."""
    made, mutant = decoder(rule="token"), next(one for one in CHAIN_MUTANTS if one.name == name)
    seen = played(made, mutant.verify).document()
    assert seen["exact"] is (name.startswith("bonus"))


def test_accepting_by_another_chance_is_seen_by_the_acceptances():
    """Accept-if-arg-max: its accepted drafts are far from their chances."""
    verify = next(one.verify for one in CHAIN_MUTANTS if one.name.startswith("accept iff arg max"))
    assert abs(played(decoder(rule="token"), verify).document()["acceptance_z"]) > 6


def played(made, verify) -> MonitoredRule:
    """600 tokens of ten texts under a wrong rule that says it is the right one."""

    class Wrong(type(made.rule)):
        def verify(self, draft, target_laws, chance):
            return verify(draft, target_laws, chance)

    watched = made.with_rule(Wrong()).monitored()
    watched.generate([(0,)] * 10, replace(PARAMS, seed=1))
    return watched.rule


def test_several_texts_count_together():
    results = decoder().generate([(0,), (1,)], replace(PARAMS, max_tokens=50), monitor=True)
    assert max(one.stats.monitor["num_tokens"] for one in results) >= 100
    first, second = (one.stats.monitor["seconds"] for one in results)
    assert first > 0 and second > 0


def test_greedy_and_plain_decoding_have_nothing_to_test():
    seen = (
        decoder()
        .generate((0,), SamplingParams(temperature=0, max_tokens=5), monitor=True)
        .stats.monitor
    )
    assert seen["exact"] is None and "temperature 0" in seen["note"]
    with pytest.raises(UsageError, match="nothing to monitor"):
        decoder().plain.generate((0,), PARAMS, monitor=True)
    with pytest.raises(UsageError, match="changes the target's law by design"):
        decoder(rule="typical").generate((0,), PARAMS, monitor=True)


def test_the_quick_ratios_are_those_of_the_laws_they_stand_for():
    from draftproof.core.faults import (
        NO_RESIDUAL,
        OFF_BY_ONE,
        TEMPERATURE,
        faulty_laws,
        quick_ratios,
    )

    target, draft = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    before = np.array([0.1, 0.1, 0.8])
    laws = list(faulty_laws(target, draft, before))
    cold, warm = target**2 / (target**2).sum(), target**0.5 / (target**0.5).sum()
    assert laws[0][1] == pytest.approx(cold)
    for token in range(3):
        quick = list(quick_ratios(target, token, draft, before))
        named = {cause: ratio * target[token] for cause, ratio in quick if cause != TEMPERATURE}
        assert [
            ratio * target[token] for cause, ratio in quick if cause == TEMPERATURE
        ] == pytest.approx([cold[token], warm[token]])
        assert named[NO_RESIDUAL] == pytest.approx(dict(laws)[NO_RESIDUAL][token])
        assert named[OFF_BY_ONE] == pytest.approx(before[token])
