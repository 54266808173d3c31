"""What a plan says: in words, as a document with a configuration to use, on a page; and plans from
numbers alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from draftproof.costs.verify_curve import VerifyCurve
from draftproof.decode.config import SpeculativeConfig
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
from draftproof.plan.document import plan_document, plan_result, sections
from draftproof.plan.plan import mean_overlap
from draftproof.plan.rounds import trace_of_coins
from draftproof.plan.whatif import what_if
from draftproof.report.page import comparison_page, page, section
from made_plans import choice_of, costs, plan_of


def test_the_textbook_numbers() -> None:
    """llama.cpp#3649: 3.69 tokens a round; 2.38x when verification is free, 1.07x when six tokens
    cost 2.9 steps."""
    free = what_if(0.8, 0.11, [5])
    assert free["choices"][0]["tokens_per_round"] == pytest.approx(3.69, abs=0.005)
    assert free["choices"][0]["speedup"]["point"] == pytest.approx(2.38, abs=0.005)
    assert any("verification is taken as free" in note for note in free["notes"])
    costly = what_if(0.8, 0.11, [5], curve=VerifyCurve((1, 6), (1.0, 2.9)))
    assert costly["choices"][0]["speedup"]["point"] == pytest.approx(1.07, abs=0.005)


def test_a_drafter_as_deep_as_the_target_is_foretold_to_lose() -> None:
    """Slower at every length and worse with more: said before anything runs, with the term that is
    to blame."""
    plan = plan_of(0.7, costs(1.0, 0.1, fixed=0.02), (1, 4, 10))
    speeds = {c.num_speculative_tokens: c.speedup.point for c in plan.choices}
    assert speeds[10] < speeds[4] < speeds[1] < 1 and plan.best is None
    assert headline(plan).startswith("do not speculate: at best 0.")
    worst = next(c for c in plan.choices if c.num_speculative_tokens == 10)
    assert "is drafting" in limits(
        worst, plan.drafters[0].costs
    ) and "verifying 11 tokens costs 2.0" in limits(worst, plan.drafters[0].costs)
    assert "no alpha is enough" in to_change(plan.drafters[0]) and "must cost" in to_change(
        plan.drafters[0]
    )


def test_what_would_have_to_change_does_change_it() -> None:
    lengths, verify = np.array([1, 2, 4]), np.array([1.1, 1.2, 1.4])
    need = alpha_needed(lengths, 0.3, verify)
    assert need is not None
    for alpha, pays in ((need + 0.002, True), (need - 0.002, False)):
        made = what_if(
            alpha, 0.3, lengths.tolist(), curve=VerifyCurve((1, 2, 3, 5), (1.0, 1.1, 1.2, 1.4))
        )
        assert (made["best"] is not None) is pays
    assert alpha_needed(lengths, 2.0, verify * 3) is None


def test_what_would_have_to_change_is_told_from_what_was_foretold() -> None:
    """A loop that costs 60% of a step a round is no part of the formula, by which this drafter
    would pay as it is."""
    plan = plan_of(0.8, costs(0.3, 0.05, fixed=0.9), (1, 2))
    assert plan.choices[0].speedup.point < 1 < max(c.iid_speedup for c in plan.choices)
    said = to_change(plan.drafters[0])
    assert float(said.split("alpha must reach ")[1][:4]) > 0.8 or "no alpha" in said
    assert float(said.split("must cost ")[1][:4]) < 0.3


def test_a_choice_whose_interval_reaches_below_one_is_not_recommended() -> None:
    plan = plan_of(0.6, costs(0.25, 0.02, noise=0.3), (2,), prompts=2)
    assert plan.choices[0].speedup.point > 1 > plan.choices[0].speedup.low
    assert plan.best is None and "the interval reaches below 1" in headline(plan)


def test_a_recommendation_says_how_other_prompts_may_fare() -> None:
    plan = plan_of(0.9, costs(0.1, 0.02))
    assert plan.best is not None and not any("on other prompts" in note for note in notes(plan))
    doubtful = replace(plan.best, other_prompts={"low": 0.8, "high": 1.5})
    drafter = replace(plan.drafters[0], choices=(doubtful,))
    said = notes(replace(plan, drafters=(drafter,)))
    assert "on other prompts of this kind it may be anything from 0.80x to 1.50x" in said


def test_the_document_has_the_keys_that_scripts_rely_on() -> None:
    data = plan_document(plan_of(0.9, costs(0.1, 0.02)), {"target": "t"})
    assert set(data["alpha"]) == {"mean", "low", "high"} and data["cost_ratio"] == pytest.approx(
        0.1
    )
    assert data["verify_ratio"]["5"] == pytest.approx(1.08)
    best = data["best"]
    assert {"method", "num_speculative_tokens", "tokens_per_round", "speedup"} <= set(best)
    assert set(best["speedup"]) == {"point", "low", "high"} and data["choices"][0] == best
    config = data["speculative_config"]
    assert (
        SpeculativeConfig.from_dict(config).num_speculative_tokens == best["num_speculative_tokens"]
    )
    losing = plan_document(plan_of(0.1, costs(0.9, 0.2)), {})
    assert losing["best"] is None and losing["speculative_config"] is None
    assert any("to pay, " in note for note in losing["notes"])


def test_the_config_is_vllms_and_the_engine_takes_it() -> None:
    for given in (
        {"method": "ngram"},
        {"method": "ngram", "prompt_lookup_max": 4},
        {"method": "draft_model", "model": "D"},
    ):
        config = SpeculativeConfig.from_dict(given)
        found = speculative_config(config, choice_of(3))
        assert (
            "rule" not in found and SpeculativeConfig.from_dict(found).num_speculative_tokens == 3
        )
        assert vllm_note(config) is None
    ruled = SpeculativeConfig.from_dict({"method": "ngram", "rule": "match"})
    assert "leaves it out" in str(vllm_note(ruled))


def test_a_schedule_becomes_the_configuration() -> None:
    found = scheduled_config(
        SpeculativeConfig.from_dict({"method": "ngram", "prompt_lookup_max": 4}),
        [[1, 4, 5], [5, 8, 0]],
    )
    assert found == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_max": 4,
        "num_speculative_tokens_per_batch_size": [[1, 4, 5], [5, 8, 0]],
    }
    config = SpeculativeConfig.from_dict(found)
    assert config.schedule is not None and config.schedule(3) == 5 and config.schedule(6) == 0
    assert scheduled_config(config, [[1, 8, 0]]) is None
    told = scheduled_headline(
        {"num_speculative_tokens_per_batch_size": [[1, 1, 4], [2, 4, 1], [5, 8, 0]]}, "ngram"
    )
    assert told == "speculate with ngram: 4 drafts up to batch 1, 1 up to 4, none up to 8"
    nothing = scheduled_headline({"num_speculative_tokens_per_batch_size": [[1, 8, 0]]}, "ngram")
    assert nothing == "do not speculate at any batch size up to 8"
    suffix = SpeculativeConfig.from_dict({"method": "suffix"})
    assert (
        "no lengths by batch size" in str(vllm_note(suffix, scheduled=True))
        and vllm_note(config, scheduled=True) is None
    )


def test_a_card_and_a_batch_without_any_model() -> None:
    small, large = (what_if(0.8, batch=b, card_name="H100-SXM") for b in (1, 512))
    assert small["best"]["speedup"]["point"] > 1.5 > large["choices"][0]["speedup"]["point"]
    assert small["cost_ratio"] > 0 and "H100-SXM" in small["notes"][0]
    with pytest.raises(UsageError, match="batch"):
        what_if(0.8, batch=0)
    several = what_if(0.8, batch=(1, 8, 512), card_name="H100-SXM")
    lengths = [k for _, _, k in several["by_batch"]["num_speculative_tokens_per_batch_size"]]
    assert (
        lengths == sorted(lengths, reverse=True)
        and lengths[0] > lengths[-1]
        and "up to 512" in several["headline"]
    )


def test_the_interval_of_alpha_is_over_prompts_not_over_their_answers() -> None:
    """Two prompts, one easy and one hard, with ten answers each: there are two pieces of evidence,
    not twenty."""
    traces = [
        trace_of_coins(np.full(20, coin), np.full(20, coin), 1) for coin in [0.9] * 10 + [0.1] * 10
    ]
    of_prompts, of_answers = mean_overlap(traces, [0] * 10 + [7] * 10), mean_overlap(traces)
    assert (of_prompts.point, of_answers.point) == pytest.approx((0.5, 0.5))
    assert (of_prompts.low, of_prompts.high) == pytest.approx(
        (0.1, 0.9)
    ) and of_answers.high - of_answers.low < 0.4


def test_a_workload_may_have_the_name_of_anything() -> None:
    data = plan_document(plan_of(0.9, costs(0.1, 0.02)), {})
    data["prompts"] = [{"workload": name} for name in ("config", "drafter", "batch")]
    data["drafters"][0]["alpha_by_workload"] = {"config": 0.25, "drafter": 0.5, "batch": None}
    page = comparison_page([("a", data)], sections)
    assert "<td>0.25</td><td>0.50</td><td></td>" in page


def test_a_page_has_the_configuration_to_copy() -> None:
    paying, losing = plan_of(0.9, costs(0.1, 0.02)), plan_of(0.1, costs(0.9, 0.2))
    text = comparison_page([("a", plan_document(paying, {}))], sections)
    assert "&quot;num_speculative_tokens&quot;: 8" in text or '"num_speculative_tokens": 8' in text
    assert "<pre>" not in comparison_page([("b", plan_document(losing, {}))], sections)


def test_pages_escape_what_they_show() -> None:
    result = plan_result(what_if(0.5, 0.1))
    text = page("<script>", [section(result, "<b>")])
    assert "<script>" not in text and "&lt;script&gt;" in text and "&lt;b&gt;" in text


def test_a_drafter_that_proposed_nothing_is_named_no_alpha_to_reach() -> None:
    plan = plan_of(0.7, costs(1.0, 0.1, fixed=0.02), (1, 4))
    assert any("alpha" in note and note.startswith("for ") for note in notes(plan))
    silent = replace(
        plan, drafters=tuple(replace(drafter, share_drafted=0.0) for drafter in plan.drafters)
    )
    assert not any(note.startswith("for ") for note in notes(silent))
    assert any("something to propose at 0% of positions" in note for note in notes(silent))


def test_given_answers_that_are_cut_are_told_of() -> None:
    plan = plan_of(0.7, costs(1.0, 0.1, fixed=0.02), (1, 4))
    length = len(plan.texts[0].answer)
    given = tuple(replace(text, own=False) for text in plan.texts)
    for limit, own, told in (
        (length, False, True),
        (length, True, False),
        (length + 1, False, False),
    ):
        made = replace(
            plan, texts=plan.texts if own else given, params=replace(plan.params, max_tokens=limit)
        )
        assert any(f"are read up to {limit} tokens" in note for note in notes(made)) == told
