"""`live` lengths follow the clock, so no enumeration can replay them: their law is tested on
samples, error rates stated."""

from __future__ import annotations

import pytest

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.audit.toys import pairs
from draftproof.core.records import Round, Seconds
from draftproof.costs.live_costs import LiveCosts
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.speculation import FOLLOWS_CLOCK
from sampling import assert_law, draw_many, exact_law

PROMPT, TOKENS, SIZE = [0, 1, 0], 2, 3000
COSTS = RoundCosts(verify=((1, 1.0), (4, 1.25)), draft=0.2, fixed=0.05)
"""Near the thresholds, so that the clock decides."""


def unsure_drafts_dropped(target, draft):
    """The law of the first two tokens where a draft is dropped, after a look, when its law gives it
    less than 0.4: the fault of lengths that look first. What is kept is judged as usual; what is
    dropped leaves a plain draw of the target."""

    def first(prefix):
        p, q = target.law(prefix), draft.law(prefix)
        residual = (p - q).clip(0)
        residual = residual / residual.sum() if residual.sum() else p
        law = 0 * p
        for token, mass in enumerate(q):
            if mass < 0.4:
                law = law + mass * p
                continue
            keep = min(1.0, p[token] / mass)
            law[token] += mass * keep
            law = law + mass * (1 - keep) * residual
        return law

    one = first(tuple(PROMPT))
    return {(a, b): one[a] * first((*PROMPT, a))[b] for a in range(3) for b in range(3)}


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_law_is_the_targets(rule):
    pair = pairs()["markov"]
    config = {
        "method": "draft_model",
        "model": "d",
        "adaptive": "live",
        "auto_off": False,
        "rule": rule,
        "costs": COSTS.as_dict(),
    }
    made = SpeculativeDecoder(
        pair.draft,
        pair.target,
        speculative_config=config | {"num_speculative_tokens": 3, "costs": COSTS.as_dict()},
    )
    law = exact_law(made.plain, PROMPT, TOKENS, ignore_eos=True)
    fault = unsure_drafts_dropped(pair.target, pair.draft)
    samples = draw_many(made, PROMPT, SIZE, max_tokens=TOKENS + 2, ignore_eos=True)
    assert_law([tokens[:TOKENS] for tokens in samples], law, fault)


def test_costs_of_trees_follow_the_clock_by_what_was_read():
    """Nine tokens were read in the time that the table foretells for nine: a step is as long as it
    was thought to be, whatever the number of levels."""
    by_token = RoundCosts(verify=((1, 1.0), (9, 1.8)), draft=0.1)
    by_level = RoundCosts(verify=((1, 1.0), (2, 1.4), (3, 1.8)), draft=0.1)
    live = LiveCosts(by_level, by_token)
    seconds = Seconds(verify=1.8, draft_forward=0.4)
    live.observe(
        Round(
            5, (0,) * 8, (-1, -1, -1, 0, 0, 1, 1, 2), (0,), ("replacement",), 0, 1, seconds=seconds
        ),
        2,
    )
    assert live.costs.draft == pytest.approx(0.1 + 0.1 * (0.2 - 0.1))
    assert live.by_token.draft == live.costs.draft


def test_a_text_that_follows_the_clock_says_so():
    """And only where the clock can change it: not under `match`, not at temperature 0."""
    pair = pairs()["markov"]

    def notes(rule, temperature):
        config = {
            "num_speculative_tokens": 2,
            "adaptive": "live",
            "costs": COSTS.as_dict(),
            "rule": rule,
        }
        made = SpeculativeDecoder(pair.draft, pair.target, speculative_config=config)
        return made.generate(
            PROMPT, SamplingParams(max_tokens=3, seed=0, temperature=temperature)
        ).stats.notes

    assert FOLLOWS_CLOCK in notes("token", 1.0)
    assert FOLLOWS_CLOCK not in notes("match", 1.0) and FOLLOWS_CLOCK not in notes("token", 0.0)
