"""The plan: costs by an injected clock, predictions from given costs, advice in words, documents and pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from draftproof import SamplingParams, TableModel
from draftproof.bench.workload import Encoded, Item
from draftproof.core.tree import TreeShape
from draftproof.core.verify_curve import VerifyCurve
from draftproof.decode.config import SpeculativeConfig
from draftproof.decode.methods import METHODS
from draftproof.errors import UsageError
from draftproof.plan.advice import (
    alpha_needed,
    headline,
    limits,
    notes,
    scheduled_config,
    scheduled_headline,
    speculative_config,
    to_change,
    vllm_note,
)
from draftproof.plan.candidate import Candidate, draft_passes
from draftproof.plan.costs import Costs, Outside, PassTimer, PassTimes, fit_outside
from draftproof.plan.document import batch_result, document, plan_result, sections
from draftproof.plan.plan import Foretold, Plan, make_plan, mean_overlap
from draftproof.plan.predict import Recorded, predict, speedup
from draftproof.plan.rounds import play, trace_of_coins, trace_of_tree
from draftproof.plan.whatif import what_if
from draftproof.report.page import comparison_page, page, section

RNG = np.random.default_rng(3)
TARGET = RNG.dirichlet(np.full(8, 0.5), size=8)
CONFIG = SpeculativeConfig.from_dict({"method": "draft_model", "model": "D"})


def costs(draft: float, verify: float, *, fixed: float = 0.0, each: float = 0.0, noise: float = 0.0) -> Costs:
    """A target step of 1 s; T(n) rises by `verify` a token; the draft step takes `draft` s. noise: by how much everything but
    the single step drifts from one of three visits to the next."""
    visits = []
    for drift in (1 - noise, 1.0, 1 + noise):
        target = {n: (1 + verify * (n - 1),) if n == 1 else (drift * (1 + verify * (n - 1)),) for n in range(1, 34)}
        visits.append(PassTimes(100, target, (draft * drift,) if draft else ()))
    return Costs(tuple(visits), Outside(fixed, each, 0.0))


def plan_of(coins: float, cost: Costs, lengths: Any = (1, 2, 4, 8), prompts: int = 4) -> Plan:
    traces = tuple(trace_of_coins(np.full(200, coins), np.full(200, coins), max(lengths)) for _ in range(prompts))
    alpha = mean_overlap(traces)
    recorded = Recorded(traces, range(prompts))
    choices = tuple(predict("draft_model", "draft_model D", recorded, k, cost, alpha.point) for k in lengths)
    foretold = Foretold(Candidate(CONFIG), traces, cost, alpha, (coins,) * 8, {"chat": coins}, None, 1.0, choices)
    encoded = tuple(Encoded(Item("x", "chat", "line"), (1, 2)) for _ in traces)
    from draftproof.plan.forcing import Text

    texts = tuple(Text((1, 2), (3,) * 200) for _ in traces)
    return Plan(encoded, texts, SamplingParams(temperature=0, seed=0), (foretold,))


def choice_of(k: int) -> Any:
    return next(c for c in plan_of(0.9, costs(0.1, 0.02), (k,)).choices)


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
    traces = [trace_of_coins(np.full(3000, 0.8), np.full(3000, 0.8), 5)] * 2
    choice = predict("draft_model", "D", Recorded(traces, (0, 1)), 5, cost, 0.8)
    assert choice.speedup.point == pytest.approx(choice.iid_speedup, rel=5e-3)
    assert choice.speedup.low <= choice.speedup.point <= choice.speedup.high


def test_bursts_make_the_average_mislead() -> None:
    """Half the text certain, half hopeless: a long draft gains more than alpha 0.5 says."""
    coins = np.repeat([1.0, 0.0], 400)
    choice = predict("draft_model", "D", Recorded([trace_of_coins(coins, coins, 8)], (0,)), 8, costs(0.01, 0.0), 0.5)
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


def test_what_would_have_to_change_is_told_from_what_was_foretold() -> None:
    """A loop that costs 60% of a step a round is no part of the formula, by which this drafter would pay as it is."""
    plan = plan_of(0.8, costs(0.3, 0.05, fixed=0.9), (1, 2))
    assert plan.choices[0].speedup.point < 1 < max(c.iid_speedup for c in plan.choices)
    said = to_change(plan.drafters[0])
    assert float(said.split("alpha must reach ")[1][:4]) > 0.8 or "no alpha" in said
    assert float(said.split("must cost ")[1][:4]) < 0.3


def test_a_choice_whose_interval_reaches_below_one_is_not_recommended() -> None:
    plan = plan_of(0.6, costs(0.25, 0.02, noise=0.3), (2,), prompts=2)
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
        found = speculative_config(config, choice_of(3))
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
    for batch in (1, 3):
        timer = PassTimer(model, (1, 2, 3), 5, TableModel(TARGET), batch=batch, clock=clock)
        visits = tuple(timer.visit(repeats=3) for _ in range(2))
        timer.close()
        assert sorted(visits[0].target) == [1, 2, 3, 4, 5] and all(t == (1.0,) * 3 for t in visits[0].target.values())
        found = Costs(visits)
        assert (
            len(visits[0].draft) == 9
            and len(visits[0].draft_pairs) == 6
            and found.curve()(5) == 1.0
            and found.spread() == found.drift() == 0
        )
        assert found.batch == batch and len(found.times[1]) == 6


def test_drift_is_what_visits_differ_by_and_widens_the_interval() -> None:
    """A machine on which drafts and long passes are 30% dearer or cheaper from one visit to the next."""
    assert costs(0.1, 0.1).drift() == pytest.approx(0, abs=1e-9) and costs(0.1, 0.1, noise=0.3).drift() == pytest.approx(
        0.31, abs=0.02
    )
    steady, drifting = (plan_of(0.8, costs(0.1, 0.1, noise=noise), (4,)).choices[0].speedup for noise in (0.0, 0.2))
    assert steady.high - steady.low < drifting.high - drifting.low


def test_a_batch_pays_for_its_loop_once_a_sequence() -> None:
    visit = PassTimes(10, {n: (1.0,) for n in range(1, 5)}, (), batch=4)
    found = Costs((visit,), Outside(0.2, 0.1, 0.1))
    assert found.plain_seconds() == pytest.approx(1.4)
    assert found.round_seconds(3).tolist() == pytest.approx([1.4, 2.2, 2.6, 3.0])


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
        target, candidates, [*prompts, given], params, [1, 3], progress=lambda what, *_: told.append(what), answers=1
    )
    assert plan.texts[3].answer == (2, 3, 4, 5) and len(plan.choices) == 4
    assert np.allclose(plan.drafters[0].traces[3].accept[:, 0], plan.drafters[0].traces[3].overlaps)
    assert 0.5 < plan.drafters[0].alpha.point < 1 and set(plan.drafters[0].by_workload) == {"chat", "code"}
    assert plan.drafters[1].costs.draft_step == 0 and plan.drafters[0].share_drafted == 1
    assert list(dict.fromkeys(told)) == [
        *("1/7 timing passes, draft_model D", "1/7 timing passes, ngram", "2/7 the target writes answers"),
        *("3/7 timing passes, draft_model D", "3/7 timing passes, ngram", "4/7 draft_model D reads", "5/7 ngram is replayed"),
        *("6/7 timing passes, draft_model D", "6/7 timing passes, ngram"),
        *("7/7 timing rounds, draft_model D", "7/7 timing rounds, ngram"),
    ]
    data = document(plan, {})
    shown = plan_result(data)
    assert len(shown.rows) == 4 and shown.title == data["headline"]
    text = comparison_page([("plan", data)], sections)
    assert text.count("<svg") == 3 and "http://" not in text.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "")


def test_a_tree_of_the_methods_own_is_foretold_to_its_depth_and_no_further() -> None:
    """Recycling's 24 places have five levels: real rounds of 12 drafts are refused, which came out after all the work."""
    target = TableModel(TARGET)
    prompts = [Encoded(Item("x", "chat", "line"), (i, i + 1)) for i in range(2)]
    candidates = [Candidate(SpeculativeConfig.from_dict({"method": method})) for method in ("ngram", "recycling")]
    plan = make_plan(target, candidates, prompts, SamplingParams(temperature=0, max_tokens=12, seed=0), [2, 12])
    found = {d.candidate.config.method: [c.num_speculative_tokens for c in d.choices] for d in plan.drafters}
    assert found == {"ngram": [2, 12], "recycling": [2]}
    assert any("recycling drafts a tree with a depth of its own: lengths above 2 are left out" in note for note in notes(plan))


def test_two_answers_of_a_prompt_are_two_texts_of_one_prompt() -> None:
    target = TableModel(TARGET)
    prompts = [Encoded(Item("x", "chat", "line"), (i, i + 1)) for i in range(2)]
    ngram = Candidate(SpeculativeConfig.from_dict({"method": "ngram"}))
    plan = make_plan(target, [ngram], prompts, SamplingParams(max_tokens=12, seed=0), [2])
    assert len(plan.texts) == 4 and [p.ids for p in plan.prompts] == [(0, 1), (0, 1), (1, 2), (1, 2)]
    assert plan.texts[0].answer != plan.texts[1].answer
    greedy = make_plan(target, [ngram], prompts, SamplingParams(temperature=0, max_tokens=12, seed=0), [2])
    assert len(greedy.texts) == 2


def test_several_batch_sizes_make_a_schedule_that_the_engine_takes() -> None:
    """Two drafters at three batch sizes from one reading of the texts; what is told and kept is the schedule."""
    target, draft = TableModel(TARGET), TableModel(0.7 * TARGET + 0.3 / 8)
    prompts = [Encoded(Item("x", "chat", "line"), (i, i + 1)) for i in range(2)]
    candidates = [Candidate(SpeculativeConfig.from_dict({"method": "ngram"})), Candidate(CONFIG, draft)]
    params = SamplingParams(temperature=0, max_tokens=12, seed=0)
    told: list[str] = []
    plan = make_plan(
        *(target, candidates, prompts, params, [1, 2]), batch=(1, 2, 4), progress=lambda what, *_: told.append(what)
    )
    plans = [plan, *plan.larger]
    assert [p.batch for p in plans] == [1, 2, 4] and {p.drafters[0].costs.batch for p in plan.larger} == {2, 4}
    assert all(p.texts == plan.texts and len(p.choices) == 4 for p in plans)
    assert sum("is replayed" in what for what in told) == 2 * 2 and any("batch 4" in what for what in told)
    data = document(plan, {})
    rows = data["by_batch"]["rows"]
    assert {(r["drafter"], r["batch"]) for r in rows} == {(c.name, b) for c in candidates for b in (1, 2, 4)} and len(rows) == 6
    assert [row["batch"] for row in batch_result(data).rows] == [1, 2, 4] * 2
    assert comparison_page([("plan", data)], sections).count("<svg") == 4
    schedule = data["by_batch"]["num_speculative_tokens_per_batch_size"]
    assert schedule[0][0] == 1 and schedule[-1][1] == 4
    assert (data["speculative_config"] is None) == (not any(k for _, _, k in schedule))


def test_a_schedule_becomes_the_configuration() -> None:
    found = scheduled_config(SpeculativeConfig.from_dict({"method": "ngram", "prompt_lookup_max": 4}), [[1, 4, 5], [5, 8, 0]])
    assert found == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_max": 4,
        "num_speculative_tokens_per_batch_size": [[1, 4, 5], [5, 8, 0]],
    }
    config = SpeculativeConfig.from_dict(found)
    assert config.schedule is not None and config.schedule(3) == 5 and config.schedule(6) == 0
    assert scheduled_config(config, [[1, 8, 0]]) is None
    told = scheduled_headline({"num_speculative_tokens_per_batch_size": [[1, 1, 4], [2, 4, 1], [5, 8, 0]]}, "ngram")
    assert told == "speculate with ngram: 4 drafts up to batch 1, 1 up to 4, none up to 8"
    nothing = scheduled_headline({"num_speculative_tokens_per_batch_size": [[1, 8, 0]]}, "ngram")
    assert nothing == "do not speculate at any batch size up to 8"
    suffix = SpeculativeConfig.from_dict({"method": "suffix"})
    assert "no lengths by batch size" in str(vllm_note(suffix, scheduled=True)) and vllm_note(config, scheduled=True) is None


def test_trees_are_foretold_beside_chains_and_a_best_one_is_found() -> None:
    target, draft = TableModel(TARGET), TableModel(0.5 * TARGET + 0.5 / 8)
    prompts = [Encoded(Item("x", "chat", "line"), (i,)) for i in range(3)]
    candidate = Candidate(CONFIG, draft, ("2,2,1", "best"))
    plan = make_plan(target, [candidate], prompts, SamplingParams(max_tokens=40, seed=0), [1, 3])
    trees = [c for c in plan.choices if c.tree is not None]
    given = next(c for c in trees if c.shape == "tree 2,2,1")
    chain = next(c for c in plan.choices if c.tree is None and c.num_speculative_tokens == 3)
    assert given.num_speculative_tokens == 3 and given.tokens_per_round > chain.tokens_per_round
    data = document(plan, {})
    assert sum(row["drafts"] == "2,2,1" for row in plan_result(data).rows) == 1
    found = speculative_config(CONFIG, given)
    assert SpeculativeConfig.from_dict(found).shape is not None and "draft trees" in str(vllm_note(CONFIG, given))


def test_a_trees_rounds_cost_their_levels_and_their_nodes() -> None:
    shape = TreeShape.from_levels([2, 2])
    passes = draft_passes(shape, costs(0.1, 0.1))
    assert passes[2] == pytest.approx(1.0) and passes[6] == pytest.approx(1.0 + 1.1)  # the second pass reads two tokens
    places = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    trace = trace_of_tree(lambda count: places[:, :count], np.ones(4), shape)
    assert trace.nodes is not None and trace.nodes.tolist() == [6, 6, 2, 0]
    assert trace.accept[0].tolist() == [1.0, 1.0] and trace.accept[1].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("config", "shapes", "said"),
    [
        ({"method": "draft_model", "model": "D", "rule": "typical"}, (), "cannot foretell rule typical"),
        ({"method": "draft_model", "model": "D", "rule": "token"}, ("2,2",), "verifies chains only"),
        ({"method": "draft_model", "model": "D", "tree": "2,1"}, ("2",), "has a tree already"),
        ({"method": "draft_model", "model": "D"}, ("4,4,4",), "at most 32"),
        ({"method": "ngram", "num_speculative_tokens_per_batch_size": [[1, 4, 5]]}, (), "leave the schedule out"),
        ({"method": "ngram", "adaptive": True}, (), "fixed draft lengths"),
    ],
)
def test_what_cannot_be_foretold_is_refused_before_any_work(config: Any, shapes: Any, said: str) -> None:
    target, prompt = TableModel(TARGET), Encoded(Item("x", "chat", "line"), (1,))
    candidate = Candidate(SpeculativeConfig.from_dict(config), TableModel(TARGET), shapes)
    with pytest.raises(UsageError, match=said):
        make_plan(target, [candidate], [prompt], SamplingParams(max_tokens=8, seed=0), [1])


def test_every_method_is_foretold_or_left_to_bench() -> None:
    """Every method of the list that needs no file can be planned without being named here, but for those that say why not."""
    target, prompt = TableModel(TARGET), Encoded(Item("x", "chat", "line"), (1, 2, 1))
    params = SamplingParams(max_tokens=8, seed=0)
    for name, method in METHODS.items():
        sliced = name in ("early_exit", "layer_skip")  # of a model with layers: tests/cli has them
        if method.model not in (None, "drafters") or name == "none" or method.requires or sliced:
            continue
        candidate = Candidate(SpeculativeConfig.from_dict({"method": name}))
        if method.foretold and not method.adapts:
            assert len(make_plan(target, [candidate], [prompt], params, [1, 2]).choices) == 2
        else:
            with pytest.raises(UsageError, match=f"measure it with bench --arm {name}"):
                make_plan(target, [candidate], [prompt], params, [1, 2])


def test_the_interval_holds_most_runs_on_the_same_prompts() -> None:
    """Nominal 90%: 60 plans of one text a prompt at a fixed clock, each against a run of its own on the same 8 prompts. With a
    true coverage of 0.9 fewer than 43 hits have a chance below 1e-4; at 0.6 or less more than 43 have one below 0.03."""
    rng, cost, hits = np.random.default_rng(1), costs(0.1, 0.05), 0
    for _ in range(60):
        easy = rng.uniform(0.2, 0.95, size=8)  # prompts differ
        coins = [np.clip(e + rng.normal(0, 0.1, 48), 0, 1) for e in easy]
        traces = [trace_of_coins(c, c, 4) for c in coins]
        choice = predict("", "", Recorded(traces, range(8)), 4, cost, 0.5)
        runs = [play(trace, 4, rng) for trace in traces]
        hits += choice.speedup.low <= speedup(runs, cost) <= choice.speedup.high
    assert hits >= 43


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
    for batch, said in (((2, 1), "that ascend"), ((), "that ascend"), (999, "1 to 256")):
        with pytest.raises(UsageError, match=said):
            make_plan(target, [ngram], [prompt], params, [1], batch=batch)
    shaped = Candidate(SpeculativeConfig.from_dict({"method": "draft_model", "model": "D", "tree": "2,1"}), target)
    with pytest.raises(UsageError, match="give one size"):
        make_plan(target, [shaped], [prompt], params, [1], batch=(1, 2))
    with pytest.raises(UsageError, match="ends with its first token"):
        make_plan(target, [ngram], [prompt], SamplingParams(max_tokens=1, seed=0), [1])


def test_a_card_and_a_batch_without_any_model() -> None:
    small, large = (what_if(0.8, batch=b, card_name="H100-SXM") for b in (1, 512))
    assert small["best"]["speedup"]["point"] > 1.5 > large["choices"][0]["speedup"]["point"]
    assert small["cost_ratio"] > 0 and "H100-SXM" in small["notes"][0]
    with pytest.raises(UsageError, match="batch"):
        what_if(0.8, batch=0)
    several = what_if(0.8, batch=(1, 8, 512), card_name="H100-SXM")
    lengths = [k for _, _, k in several["by_batch"]["num_speculative_tokens_per_batch_size"]]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[-1] and "up to 512" in several["headline"]


def test_a_page_has_the_configuration_to_copy() -> None:
    paying, losing = plan_of(0.9, costs(0.1, 0.02)), plan_of(0.1, costs(0.9, 0.2))
    text = comparison_page([("a", document(paying, {}))], sections)
    assert "&quot;num_speculative_tokens&quot;: 8" in text or '"num_speculative_tokens": 8' in text
    assert "<pre>" not in comparison_page([("b", document(losing, {}))], sections)


def test_pages_escape_what_they_show() -> None:
    result = plan_result(what_if(0.5, 0.1))
    text = page("<script>", [section(result, "<b>")])
    assert "<script>" not in text and "&lt;script&gt;" in text and "&lt;b&gt;" in text
