"""`live` lengths follow the clock, so no enumeration can replay them: their law is tested on samples, error rates stated."""

from __future__ import annotations

import pytest

from draftproof import SpeculativeDecoder
from draftproof.audit.toys import pairs
from draftproof.core.round_costs import RoundCosts
from sampling import assert_law, draw_many, exact_law

PROMPT, TOKENS, SIZE = [0, 1, 0], 2, 3000
COSTS = RoundCosts(verify=((1, 1.0), (4, 1.25)), draft=0.2, fixed=0.05)
"""Near the thresholds, so that the clock decides."""


def unsure_drafts_dropped(target, draft):
    """The law of the first two tokens where a draft is dropped, after a look, when its law gives it less than 0.4: the fault of
    lengths that look first. What is kept is judged as usual; what is dropped leaves a plain draw of the target."""

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
        pair.draft, pair.target, speculative_config=config | {"num_speculative_tokens": 3, "costs": COSTS.as_dict()}
    )
    law = exact_law(made.plain, PROMPT, TOKENS, ignore_eos=True)
    fault = unsure_drafts_dropped(pair.target, pair.draft)
    samples = draw_many(made, PROMPT, SIZE, max_tokens=TOKENS + 2, ignore_eos=True)
    assert_law([tokens[:TOKENS] for tokens in samples], law, fault)
