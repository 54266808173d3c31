"""Never much slower than plain: the bound by the table of costs on the worst texts we can think of,
and what may not leak."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder
from draftproof.core.records import Round
from draftproof.costs.round_costs import RoundCosts
from draftproof.decode.length import LengthController, Member, Situation
from draftproof.decode.lengths import LENGTHS
from draftproof.decode.lengths.auto_off import HORIZON, SHARE, Ledger
from draftproof.models.table import TableModel

TOKENS = 200
PRICES = {
    "cheap": RoundCosts(verify=((1, 1.0), (17, 1.2)), draft=0.05, read=0.001, prompt=0.02),
    "as a pair on a CPU": RoundCosts(
        verify=((1, 1.0), (9, 1.15), (17, 1.5)), draft=0.43, read=0.02, prompt=0.045
    ),
    "looked up, dear to verify": RoundCosts(verify=((1, 1.0), (2, 1.8), (17, 14.0)), fixed=0.03),
    "a draft as dear as the target": RoundCosts(
        verify=((1, 1.0), (17, 3.0)), draft=1.0, read=0.05, prompt=0.05, each=0.01
    ),
}
PROMPTS = (1, 60, 4000)


def never(turn, drafts):
    return 0


def always(turn, drafts):
    return drafts


def lure(turn, drafts):
    """Everything for a while, then nothing: the drafter is trusted just when it fails."""
    return drafts if turn % 14 < 7 else 0


def probes_only(turn, drafts):
    """A draft of a probe is accepted, a longer one never."""
    return drafts if drafts <= 2 else 0


ACCEPTS = (never, always, lure, probes_only)


def replay(controller, prompt, accepts, tokens=TOKENS, longest=16):
    """The rounds of a text of `tokens` tokens with a drafter whose first accepts(turn, drafts)
    tokens are kept."""
    length, turn, rounds = prompt, 0, []
    while length < prompt + tokens:
        left = prompt + tokens - length
        drafts = controller.begin(Situation(length, min(longest, left - 1), left))
        drafts = min(drafts, controller.room(0)) if drafts else 0
        accepted = min(accepts(turn, drafts), drafts)
        turn += drafts > 0
        record = Round(
            start=length,
            draft_tokens=(0,) * drafts,
            draft_parents=tuple(range(-1, drafts - 1)),
            tokens=(0,) * (accepted + 1),
            origins=("draft",) * accepted + ("replacement",),
            num_accepted_tokens=accepted,
            reached=min(accepted + 1, drafts),
            length_reason=controller.reason,
        )
        controller.observe(record)
        rounds.append(record)
        length += accepted + 1
    return rounds


def work(rounds, costs, prompt):
    """Plain tokens' time of these rounds beyond plain decoding's, reckoned here anew, and plain
    decoding's."""
    read, extra = 0, 0.0
    for record in rounds:
        drafts = len(record.draft_tokens)
        if drafts:
            steps = costs.draft > 0
            extra += costs.verify_ratio(drafts + 1) - 1.0 + costs.fixed + costs.each * drafts
            extra += (
                (drafts * costs.draft + costs.read * (record.start - read - 1)) if steps else 0.0
            )
            read = record.start + min(record.num_accepted_tokens, drafts - 1)
        extra -= len(record.tokens) - 1
    return extra, costs.prompt * (prompt - 1) + sum(len(record.tokens) for record in rounds)


@pytest.mark.parametrize("accepts", ACCEPTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("rule", [name for name in LENGTHS if name != "live"])
def test_at_most_three_percent_more_work_than_plain(rule, price, prompt, accepts):
    costs = PRICES[price]
    controller = LengthController(
        [Member("x", LENGTHS[rule].make(costs), costs, auto_off=True)], Ledger()
    )
    extra, plain = work(replay(controller, prompt, accepts), costs, prompt)
    assert extra <= SHARE * plain + 1e-9, f"{extra / plain:.1%} more work than plain"


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_holds_for_texts_by_chance(seed):
    rng = np.random.default_rng(seed)
    costs = PRICES[list(PRICES)[seed % len(PRICES)]]
    rate = rng.random(TOKENS + 1).round()  # good and bad stretches
    controller = LengthController(
        [Member("x", LENGTHS["survival"].make(costs), costs, auto_off=True)], Ledger()
    )
    rounds = replay(controller, 30, lambda turn, drafts: int(rng.binomial(drafts, rate[turn])))
    extra, plain = work(rounds, costs, 30)
    assert extra <= SHARE * plain + 1e-9


def test_without_auto_off_the_same_text_costs_far_more():
    """What the budget prevents: otherwise the tests above would prove nothing."""
    costs = PRICES["as a pair on a CPU"]
    controller = LengthController(
        [Member("x", LENGTHS["fixed"].make(costs), costs, auto_off=False)]
    )
    extra, plain = work(replay(controller, 60, never, longest=4), costs, 60)
    assert extra > 1.0 * plain


def test_a_good_drafter_is_used_and_a_bad_one_is_asked_ever_more_rarely():
    costs = PRICES["cheap"]
    for accepts, most, least in ((always, 200, 0.9), (never, 30, 0.0)):
        controller = LengthController(
            [Member("x", LENGTHS["survival"].make(costs), costs, auto_off=True)], Ledger()
        )
        rounds = replay(controller, 20, accepts)
        drafted = [i for i, record in enumerate(rounds) if record.draft_tokens]
        assert least * len(rounds) <= len(drafted) <= most
    gaps = np.diff(drafted)
    assert gaps[-1] > 10 * gaps[0]
    assert {record.length_reason for record in rounds} >= {
        "probe",
        "off: recent rounds cost more than they gave",
    }


def test_a_long_prompt_is_not_read_by_the_draft_before_the_budget_allows_it():
    costs = PRICES["as a pair on a CPU"]
    controller = LengthController(
        [Member("x", LENGTHS["survival"].make(costs), costs, auto_off=True)], Ledger()
    )
    rounds = replay(controller, 4000, always)
    assert not any(record.draft_tokens for record in rounds)
    assert rounds[0].length_reason.startswith("over budget")


def test_the_drafter_that_has_become_useful_is_found_again():
    costs = PRICES["cheap"]
    controller = LengthController(
        [Member("x", LENGTHS["survival"].make(costs), costs, auto_off=True)], Ledger()
    )
    rounds = replay(controller, 20, lambda turn, drafts: 0 if turn < 8 else drafts, tokens=400)
    assert sum(len(record.draft_tokens) for record in rounds[-5:]) > 20


def decoder(**config):
    target = TableModel([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    draft = TableModel([[0.2, 0.5, 0.3], [0.5, 0.2, 0.3], [0.4, 0.5, 0.1]])
    costs = {"costs": PRICES["cheap"].as_dict()}
    return SpeculativeDecoder(
        draft, target, speculative_config={"method": "draft_model", "model": "d"} | costs | config
    )


@pytest.mark.parametrize("adaptive", ["heuristic", "lab", "survival"])
def test_one_request_leaves_nothing_for_the_next(adaptive):
    params = SamplingParams(max_tokens=60, seed=4, temperature=1.0)
    one = decoder(adaptive=adaptive)
    first, other = one.generate([0, 1], params), one.generate([2, 2, 1], params)
    again = one.generate([0, 1], params)
    assert first.rounds == again.rounds
    assert other.rounds == decoder(adaptive=adaptive).generate([2, 2, 1], params).rounds


@pytest.mark.parametrize("adaptive", ["heuristic", "lab", "survival"])
def test_a_run_replays_from_its_seed_and_its_recorded_costs(adaptive):
    params = SamplingParams(max_tokens=60, seed=5, temperature=1.0)
    one = decoder(adaptive=adaptive)
    two = decoder(**one.config.as_dict() | {"model": "d"})
    assert one.generate([0, 1], params).rounds == two.generate([0, 1], params).rounds


def test_live_costs_promise_the_same_text_under_match():
    """Whatever the clock says, `match` emits plain decoding's text for the seed."""
    params = SamplingParams(max_tokens=60, seed=5, temperature=1.0)
    live = decoder(adaptive="live", rule="match")
    assert live.generate([0, 1], params).token_ids == live.plain.generate([0, 1], params).token_ids


def test_decisions_and_reasons_are_in_the_statistics():
    stats = (
        decoder(adaptive="survival")
        .generate([0, 1], SamplingParams(max_tokens=60, seed=5, temperature=1.0))
        .stats
    )
    assert sum(stats.length_reasons.values()) == stats.num_rounds
    assert sum(stats.rounds_per_draft_length) == stats.num_rounds
    assert (
        sum(n * count for n, count in enumerate(stats.rounds_per_draft_length))
        == stats.num_draft_tokens
    )


def test_costs_are_measured_when_the_pair_is_made_and_none_are_given():
    target = TableModel([[0.6, 0.4], [0.3, 0.7]])
    config = {"method": "draft_model", "model": "d", "adaptive": True, "rule": "match"}
    made = SpeculativeDecoder(target, target, speculative_config=config)
    costs = RoundCosts.from_dict(made.config.costs["draft_model"])
    assert costs.verify[0] == (1, 1.0)
    assert costs.verify[-1][0] == made.config.num_speculative_tokens + 1
    assert costs.draft > 0


def test_auto_uses_each_drafter_where_it_is_good():
    """A text that repeats itself is looked up; a new one that the draft model knows is drafted by
    the model."""
    size = 64
    follows = np.random.default_rng(0).permutation(size)
    table = np.full((size, size), 0.01 / (size - 1))
    table[np.arange(size), follows] = 0.99
    model = TableModel(table / table.sum(axis=1, keepdims=True))
    costs = {
        "suffix": RoundCosts(verify=((1, 1.0), (17, 1.2))).as_dict(),
        "draft_model": PRICES["cheap"].as_dict(),
    }
    config = {"method": "auto", "model": "d", "costs": costs}
    made = SpeculativeDecoder(model, model, speculative_config=config)
    fresh = made.generate([3], SamplingParams(max_tokens=12, seed=1, temperature=0.0)).stats
    assert set(fresh.rounds_per_drafter) == {"draft_model"}
    known = made.generate(
        [3, 5, 3, 5, 3, 5, 3, 5], SamplingParams(max_tokens=100, seed=1, temperature=0.0)
    ).stats
    assert known.rounds_per_drafter.get("suffix", 0) > 0


def test_the_horizon_is_what_the_share_is_taken_of():
    assert Ledger().affords(1.0 + SHARE * HORIZON)
    assert not Ledger().affords(1.01 + SHARE * HORIZON)
