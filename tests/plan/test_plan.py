"""The plan: costs by an injected clock, predictions from given costs, advice in words, documents and pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from draftproof import SamplingParams, TableModel
from draftproof.bench.workload import Encoded, Item
from draftproof.core.verify_curve import VerifyCurve
from draftproof.decode.config import SpeculativeConfig
from draftproof.errors import UsageError
from draftproof.plan.advice import alpha_needed, headline, limits, speculative_config, to_change, vllm_note
from draftproof.plan.costs import Costs, Outside, PassTimes, fit_outside, time_passes
from draftproof.plan.document import document, plan_result, sections
from draftproof.plan.plan import Candidate, Foretold, Plan, make_plan, mean_overlap
from draftproof.plan.predict import predict
from draftproof.plan.rounds import trace_of_coins
from draftproof.plan.whatif import what_if
from draftproof.report.page import comparison_page, page, section

RNG = np.random.default_rng(3)
TARGET = RNG.dirichlet(np.full(8, 0.5), size=8)
CONFIG = SpeculativeConfig.from_dict({"method": "draft_model", "model": "D"})


def costs(draft: float, verify: float, *, fixed: float = 0.0, each: float = 0.0, noise: float = 0.0) -> Costs:
    """A target step of 1 s; T(n) rises by `verify` a token; the draft step takes `draft` s."""
    spread = (1 - noise, 1.0, 1 + noise)
    target = {n: tuple(s * (1 + verify * (n - 1)) for s in spread) for n in range(1, 34)}
    return Costs(PassTimes(100, target, tuple(draft * s for s in spread) if draft else ()), Outside(fixed, each, 0.0))


def plan_of(coins: float, cost: Costs, lengths: Any = (1, 2, 4, 8), prompts: int = 4) -> Plan:
    traces = tuple(trace_of_coins(np.full(200, coins), np.full(200, coins), max(lengths)) for _ in range(prompts))
    alpha = mean_overlap(traces)
    choices = tuple(predict("draft_model", "draft_model D", traces, k, cost, alpha.point) for k in lengths)
    foretold = Foretold(Candidate(CONFIG), traces, cost, alpha, (coins,) * 8, {"chat": coins}, None, 1.0, choices)
    encoded = tuple(Encoded(Item("x", "chat", "line"), (1, 2)) for _ in traces)
    from draftproof.plan.forcing import Text

    texts = tuple(Text((1, 2), (3,) * 200) for _ in traces)
    return Plan(encoded, texts, SamplingParams(temperature=0, seed=0), (foretold,))


def test_the_textbook_numbers() -> None:
    """llama.cpp#3649: 3.69 tokens a round; 2.38x when verification is free, 1.07x when six tokens cost 2.9 steps."""
    free = what_if(0.8, 0.11, [5])
    assert free["choices"][0]["tokens_per_round"] == pytest.approx(3.69, abs=0.005)
    assert free["choices"][0]["speedup"]["point"] == pytest.approx(2.38, abs=0.005)
    assert any("verification is taken as free" in note for note in free["notes"])
    costly = what_if(0.8, 0.11, [5], curve=VerifyCurve((1, 6), (1.0, 2.9)))
    assert costly["choices"][0]["speedup"]["point"] == pytest.approx(1.07, abs=0.005)


def test_prediction_from_positions_is_the_formula_where_positions_are_alike() -> None:
    cost = costs(0.11, 0.0)
    choice = predict("draft_model", "D", [trace_of_coins(np.full(3000, 0.8), np.full(3000, 0.8), 5)] * 2, 5, cost, 0.8)
    assert choice.speedup.point == pytest.approx(choice.iid_speedup, rel=5e-3)
    assert choice.speedup.low <= choice.speedup.point <= choice.speedup.high


def test_bursts_make_the_average_mislead() -> None:
    """Half the text certain, half hopeless: a long draft gains more than alpha 0.5 says."""
    coins = np.repeat([1.0, 0.0], 400)
    choice = predict("draft_model", "D", [trace_of_coins(coins, coins, 8)], 8, costs(0.01, 0.0), 0.5)
    assert choice.tokens_per_round == pytest.approx(800 / (400 / 9 + 400), rel=0.02)
    assert choice.iid_speedup > choice.speedup.point  # the formula counts successes that come in pieces of no use


def test_a_drafter_as_deep_as_the_target_is_foretold_to_lose() -> None:
    """Slower at every length and worse with more: said before anything runs, with the term that is to blame."""
    plan = plan_of(0.7, costs(1.0, 0.1, fixed=0.02), (1, 4, 10))
    speeds = {c.num_speculative_tokens: c.speedup.point for c in plan.choices}
    assert speeds[10] < speeds[4] < speeds[1] < 1 and plan.best is None
    assert headline(plan).startswith("do not speculate: at best 0.")
    worst = next(c for c in plan.choices if c.num_speculative_tokens == 10)
    assert "is drafting" in limits(worst, plan.drafters[0].costs) and "verifying 11 tokens costs 2.0" in limits(
        worst, plan.drafters[0].costs
    )
    assert "no alpha is enough" in to_change(plan.drafters[0]) and "must cost" in to_change(plan.drafters[0])


def test_what_would_have_to_change_does_change_it() -> None:
    lengths, verify = np.array([1, 2, 4]), np.array([1.1, 1.2, 1.4])
    need = alpha_needed(lengths, 0.3, verify)
    assert need is not None
    for alpha, pays in ((need + 0.002, True), (need - 0.002, False)):
        made = what_if(alpha, 0.3, lengths.tolist(), curve=VerifyCurve((1, 2, 3, 5), (1.0, 1.1, 1.2, 1.4)))
        assert (made["best"] is not None) is pays
    assert alpha_needed(lengths, 2.0, verify * 3) is None


def test_a_choice_whose_interval_reaches_below_one_is_not_recommended() -> None:
    plan = plan_of(0.55, costs(0.25, 0.02, noise=0.4), (2,), prompts=2)
    assert plan.choices[0].speedup.point > 1 > plan.choices[0].speedup.low
    assert plan.best is None and "the interval reaches below 1" in headline(plan)


def test_the_document_has_the_keys_that_scripts_rely_on() -> None:
    data = document(plan_of(0.9, costs(0.1, 0.02)), {"target": "t"})
    assert set(data["alpha"]) == {"mean", "low", "high"} and data["cost_ratio"] == pytest.approx(0.1)
    assert data["verify_ratio"]["5"] == pytest.approx(1.08)
    best = data["best"]
    assert {"method", "num_speculative_tokens", "tokens_per_round", "speedup"} <= set(best)
    assert set(best["speedup"]) == {"point", "low", "high"} and data["choices"][0] == best
    config = data["speculative_config"]
    assert SpeculativeConfig.from_dict(config).num_speculative_tokens == best["num_speculative_tokens"]
    losing = document(plan_of(0.1, costs(0.9, 0.2)), {})
    assert losing["best"] is None and losing["speculative_config"] is None
    assert any("to pay, " in note for note in losing["notes"])


def test_the_config_is_vllms_and_the_engine_takes_it() -> None:
    for given in ({"method": "ngram"}, {"method": "ngram", "prompt_lookup_max": 4}, {"method": "draft_model", "model": "D"}):
        config = SpeculativeConfig.from_dict(given)
        found = speculative_config(config, 3)
        assert "rule" not in found and SpeculativeConfig.from_dict(found).num_speculative_tokens == 3
        assert vllm_note(config) is None
    ruled = SpeculativeConfig.from_dict({"method": "ngram", "rule": "match"})
    assert "leaves it out" in str(vllm_note(ruled))


def test_passes_are_timed_in_turns_and_the_first_turn_is_left_out() -> None:
    now, calls = 0.0, 0

    def clock() -> float:
        nonlocal now, calls
        calls += 1
        now += 1.0 if calls % 2 == 0 else 0.0
        return now

    model = TableModel(TARGET)
    times = time_passes(model, (1, 2, 3), 5, TableModel(TARGET), repeats=3, clock=clock)
    assert sorted(times.target) == [1, 2, 3, 4, 5] and all(t == (1.0,) * 3 for t in times.target.values())
    assert len(times.draft) == 15 and times.curve()(5) == 1.0 and times.spread() == 0


def test_the_cost_outside_forwards_is_a_line_that_does_not_fall() -> None:
    found = fit_outside([0.5], [(1, 1.0), (1, 1.0), (4, 2.5), (4, 2.5), (0, 9.0)])
    assert (found.fixed, found.each, found.plain) == pytest.approx((0.5, 0.5, 0.5))
    assert fit_outside([0.5], [(1, 2.0), (4, 1.0)]) == Outside(1.5, 0.0, 0.5)
    assert fit_outside([0.5], [(2, 0.7)]) == Outside(0.7, 0.0, 0.5)
    assert fit_outside([], []) == Outside(0.0, 0.0, 0.0)


def test_a_whole_plan_on_models_with_known_laws() -> None:
    target, draft = TableModel(TARGET), TableModel(0.7 * TARGET + 0.3 / 8)
    prompts = [Encoded(Item("x", name, "line"), (i, i + 1)) for i, name in enumerate(("chat", "code", "chat"))]
    given = Encoded(Item("x", "code", "line", "answer"), (1,), (2, 3, 4, 5))
    candidates = [Candidate(CONFIG, draft), Candidate(SpeculativeConfig.from_dict({"method": "ngram"}))]
    told: list[str] = []
    params = SamplingParams(max_tokens=16, seed=0)
    plan = make_plan(
        target, candidates, [*prompts, given], params, [1, 3], progress=lambda what, *_: told.append(what), repeats=3
    )
    assert plan.texts[3].answer == (2, 3, 4, 5) and len(plan.choices) == 4
    assert np.allclose(plan.drafters[0].traces[3].accept[:, 0], plan.drafters[0].traces[3].overlaps)
    assert 0.5 < plan.drafters[0].alpha.point < 1 and set(plan.drafters[0].by_workload) == {"chat", "code"}
    assert plan.drafters[1].costs.draft_step == 0 and plan.drafters[0].share_drafted == 1
    assert {"the target writes answers", "ngram is replayed", "draft_model D reads"} <= set(told)
    data = document(plan, {})
    shown = plan_result(data)
    assert len(shown.rows) == 4 and shown.title == data["headline"]
    text = comparison_page([("plan", data)], sections)
    assert text.count("<svg") == 3 and "http://" not in text.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "")


def test_nothing_to_plan_with_is_refused() -> None:
    target, params = TableModel(TARGET), SamplingParams(max_tokens=4, seed=0)
    prompt = Encoded(Item("x", "chat", "line"), (1,))
    ngram = Candidate(SpeculativeConfig.from_dict({"method": "ngram"}))
    for candidates, prompts, lengths, said in (
        ([], [prompt], [1], "at least one drafter"),
        ([ngram], [], [1], "at least one drafter"),
        ([ngram], [prompt], [0], "from 1 to 32"),
    ):
        with pytest.raises(UsageError, match=said):
            make_plan(target, candidates, prompts, params, lengths)
    with pytest.raises(UsageError, match="ends with its first token"):
        make_plan(target, [ngram], [prompt], SamplingParams(max_tokens=1, seed=0), [1])


def test_a_card_and_a_batch_without_any_model() -> None:
    small, large = (what_if(0.8, batch=b, card_name="H100-SXM") for b in (1, 512))
    assert small["best"]["speedup"]["point"] > 1.5 > large["choices"][0]["speedup"]["point"]
    assert small["cost_ratio"] > 0 and "H100-SXM" in small["notes"][0]
    with pytest.raises(UsageError, match="batch"):
        what_if(0.8, batch=0)


def test_pages_escape_what_they_show() -> None:
    result = plan_result(what_if(0.5, 0.1))
    text = page("<script>", [section(result, "<b>")])
    assert "<script>" not in text and "&lt;script&gt;" in text and "&lt;b&gt;" in text
