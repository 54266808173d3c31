"""Whole plans on models with known laws: every drafter at every length and batch size, and what is
refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from draftproof import SamplingParams, TableModel
from draftproof.decode.config import SpeculativeConfig
from draftproof.drafters.registry import METHODS
from draftproof.errors import UsageError
from draftproof.plan.advice import notes, speculative_config, vllm_note
from draftproof.plan.candidate import Candidate
from draftproof.plan.document import batch_result, plan_document, plan_result, sections
from draftproof.plan.plan import make_plan, mean_overlap
from draftproof.report.page import comparison_page
from draftproof.workloads.prompt_files import Encoded, Item
from made_plans import CONFIG, TARGET


def test_a_whole_plan_on_models_with_known_laws() -> None:
    target, draft = TableModel(TARGET), TableModel(0.7 * TARGET + 0.3 / 8)
    prompts = [
        Encoded(Item("x", name, "line"), (i, i + 1))
        for i, name in enumerate(("chat", "code", "chat"))
    ]
    given = Encoded(Item("x", "code", "line", "answer"), (1,), (2, 3, 4, 5))
    candidates = [
        Candidate(CONFIG, draft),
        Candidate(SpeculativeConfig.from_dict({"method": "ngram"})),
    ]
    told: list[str] = []
    params = SamplingParams(max_tokens=16, seed=0)
    plan = make_plan(
        target,
        candidates,
        [*prompts, given],
        params,
        [1, 3],
        progress=lambda what, *_: told.append(what),
        answers=1,
    )
    assert plan.texts[3].answer == (2, 3, 4, 5) and len(plan.choices) == 4
    assert np.allclose(plan.drafters[0].traces[3].accept[:, 0], plan.drafters[0].traces[3].overlaps)
    assert 0.5 < plan.drafters[0].alpha.point < 1 and set(plan.drafters[0].by_workload) == {
        "chat",
        "code",
    }
    assert plan.drafters[1].costs.draft_step == 0 and plan.drafters[0].share_drafted == 1
    assert list(dict.fromkeys(told)) == [
        *(
            "1/8 timing passes, draft_model D",
            "1/8 timing passes, ngram",
            "2/8 the target writes answers",
        ),
        *(
            "3/8 timing passes, draft_model D",
            "3/8 timing passes, ngram",
            "4/8 draft_model D reads",
            "5/8 ngram is replayed",
        ),
        *("6/8 timing passes, draft_model D", "6/8 timing passes, ngram"),
        *("7/8 timing rounds, draft_model D", "7/8 timing rounds, ngram"),
        "8/8 timing passes of up to 32 tokens",
    ]
    data = plan_document(plan, {})
    shown = plan_result(data)
    assert len(shown.rows) == 4 and shown.title == data["headline"]
    assert (
        [list(curve["ratios"]) for curve in data["verify_curves"]]
        == [[str(n) for n in range(1, 33)]] * len(plan.verify)
        != []
    )
    text = comparison_page([("plan", data)], sections)
    assert text.count("<svg") == 3 and "http://" not in text.replace(
        "http://www.w3.org", ""
    ).replace("http://purl.org", "").replace("http://creativecommons.org", "")


def test_a_tree_of_the_methods_own_is_foretold_to_its_depth_and_no_further() -> None:
    """Recycling's 24 places have five levels: real rounds of 12 drafts are refused, which came out
    after all the work."""
    target = TableModel(TARGET)
    prompts = [Encoded(Item("x", "chat", "line"), (i, i + 1)) for i in range(2)]
    candidates = [
        Candidate(SpeculativeConfig.from_dict({"method": method}))
        for method in ("ngram", "recycling")
    ]
    plan = make_plan(
        target, candidates, prompts, SamplingParams(temperature=0, max_tokens=12, seed=0), [2, 12]
    )
    found = {
        d.candidate.config.method: [c.num_speculative_tokens for c in d.choices]
        for d in plan.drafters
    }
    assert found == {"ngram": [2, 12], "recycling": [2]}
    assert sum("lengths above 2 are left out" in note for note in notes(plan)) == 1
    assert any(
        "recycling drafts a tree with a depth of its own: lengths above 2 are left out" in note
        for note in notes(plan)
    )
    alone = make_plan(
        target, candidates[1:], prompts, SamplingParams(temperature=0, max_tokens=12, seed=0), [12]
    )
    assert [c.num_speculative_tokens for c in alone.choices] == [5]
    assert any("lengths above 5 are left out" in note for note in notes(alone)), (
        "not dropped silently"
    )


def test_a_chain_beside_a_deeper_tree_is_no_tree_of_its_own() -> None:
    target = TableModel(TARGET)
    prompts = [Encoded(Item("x", "chat", "line"), (i, i + 1)) for i in range(2)]
    candidates = [
        Candidate(SpeculativeConfig.from_dict({"method": "ngram"})),
        Candidate(CONFIG, target, ("2,1,1,1",)),
    ]
    plan = make_plan(
        target, candidates, prompts, SamplingParams(temperature=0, max_tokens=12, seed=0), [1, 2]
    )
    assert max(choice.num_speculative_tokens for choice in plan.choices) == 4
    assert not any("left out" in note for note in notes(plan))


def test_two_answers_of_a_prompt_are_two_texts_of_one_prompt() -> None:
    target = TableModel(TARGET)
    prompts = [Encoded(Item("x", "chat", "line"), (i, i + 1)) for i in range(2)]
    ngram = Candidate(SpeculativeConfig.from_dict({"method": "ngram"}))
    plan = make_plan(target, [ngram], prompts, SamplingParams(max_tokens=12, seed=0), [2])
    assert len(plan.texts) == 4 and [p.ids for p in plan.prompts] == [
        (0, 1),
        (0, 1),
        (1, 2),
        (1, 2),
    ]
    assert plan.texts[0].answer != plan.texts[1].answer
    traces = plan.drafters[0].traces
    assert plan.drafters[0].alpha == mean_overlap(traces, (0, 0, 1, 1)) != mean_overlap(traces)
    greedy = make_plan(
        target, [ngram], prompts, SamplingParams(temperature=0, max_tokens=12, seed=0), [2]
    )
    assert len(greedy.texts) == 2


def test_several_batch_sizes_make_a_schedule_that_the_engine_takes() -> None:
    """Two drafters at three batch sizes from one reading of the texts; what is told and kept is the
    schedule."""
    target, draft = TableModel(TARGET), TableModel(0.7 * TARGET + 0.3 / 8)
    prompts = [Encoded(Item("x", "chat", "line"), (i, i + 1)) for i in range(2)]
    candidates = [
        Candidate(SpeculativeConfig.from_dict({"method": "ngram"})),
        Candidate(CONFIG, draft),
    ]
    params = SamplingParams(temperature=0, max_tokens=12, seed=0)
    told: list[str] = []
    plan = make_plan(
        *(target, candidates, prompts, params, [1, 2]),
        batch=(1, 2, 4),
        progress=lambda what, *_: told.append(what),
    )
    plans = [plan, *plan.larger]
    assert [p.batch for p in plans] == [1, 2, 4] and {
        p.drafters[0].costs.batch for p in plan.larger
    } == {2, 4}
    assert all(p.texts == plan.texts and len(p.choices) == 4 for p in plans)
    assert sum("is replayed" in what for what in told) == 2 * 2 and any(
        "batch 4" in what for what in told
    )
    data = plan_document(plan, {})
    rows = data["by_batch"]["rows"]
    assert {(r["drafter"], r["batch"]) for r in rows} == {
        (c.name, b) for c in candidates for b in (1, 2, 4)
    } and len(rows) == 6
    assert [row["batch"] for row in batch_result(data).rows] == [1, 2, 4] * 2
    assert comparison_page([("plan", data)], sections).count("<svg") == 4
    schedule = data["by_batch"]["num_speculative_tokens_per_batch_size"]
    assert schedule[0][0] == 1 and schedule[-1][1] == 4
    assert (data["speculative_config"] is None) == (not any(k for _, _, k in schedule))


def test_trees_are_foretold_beside_chains_and_a_best_one_is_found() -> None:
    target, draft = TableModel(TARGET), TableModel(0.5 * TARGET + 0.5 / 8)
    prompts = [Encoded(Item("x", "chat", "line"), (i,)) for i in range(3)]
    candidate = Candidate(CONFIG, draft, ("2,2,1", "best"))
    plan = make_plan(target, [candidate], prompts, SamplingParams(max_tokens=40, seed=0), [1, 3])
    trees = [c for c in plan.choices if c.tree is not None]
    given = next(c for c in trees if c.shape == "tree 2,2,1")
    chain = next(c for c in plan.choices if c.tree is None and c.num_speculative_tokens == 3)
    assert given.num_speculative_tokens == 3 and given.tokens_per_round > chain.tokens_per_round
    data = plan_document(plan, {})
    assert sum(row["drafts"] == "2,2,1" for row in plan_result(data).rows) == 1
    found = speculative_config(CONFIG, given)
    assert SpeculativeConfig.from_dict(found).shape is not None and "draft trees" in str(
        vllm_note(CONFIG, given)
    )


@pytest.mark.parametrize(
    ("config", "shapes", "said"),
    [
        (
            {"method": "draft_model", "model": "D", "rule": "typical"},
            (),
            "cannot foretell rule typical",
        ),
        (
            {"method": "draft_model", "model": "D", "rule": "token"},
            ("2,2",),
            "verifies chains only",
        ),
        ({"method": "draft_model", "model": "D", "tree": "2,1"}, ("2",), "has a tree already"),
        ({"method": "draft_model", "model": "D"}, ("4,4,4",), "at most 32"),
        (
            {"method": "ngram", "num_speculative_tokens_per_batch_size": [[1, 4, 5]]},
            (),
            "leave the schedule out",
        ),
        ({"method": "ngram", "adaptive": True}, (), "fixed draft lengths"),
    ],
)
def test_what_cannot_be_foretold_is_refused_before_any_work(
    config: Any, shapes: Any, said: str
) -> None:
    target, prompt = TableModel(TARGET), Encoded(Item("x", "chat", "line"), (1,))
    candidate = Candidate(SpeculativeConfig.from_dict(config), TableModel(TARGET), shapes)
    with pytest.raises(UsageError, match=said):
        make_plan(target, [candidate], [prompt], SamplingParams(max_tokens=8, seed=0), [1])


def test_every_method_is_foretold_or_left_to_bench() -> None:
    """Every method of the list that needs no file can be planned without being named here, but for
    those that say why not."""
    target, prompt = TableModel(TARGET), Encoded(Item("x", "chat", "line"), (1, 2, 1))
    params = SamplingParams(max_tokens=8, seed=0)
    for name, method in METHODS.items():
        sliced = name in ("early_exit", "layer_skip")  # of a model with layers: tests/cli has them
        if method.model not in (None, "drafters") or name == "none" or method.requires or sliced:
            continue
        candidate = Candidate(SpeculativeConfig.from_dict({"method": name}))
        if method.foretold:
            choices = make_plan(target, [candidate], [prompt], params, [1, 2]).choices
            assert len(choices) == (1 if method.adapts else 2)
        else:
            with pytest.raises(UsageError, match=f"measure it with bench --arm {name}"):
                make_plan(target, [candidate], [prompt], params, [1, 2])


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
    shaped = Candidate(
        SpeculativeConfig.from_dict({"method": "draft_model", "model": "D", "tree": "2,1"}), target
    )
    with pytest.raises(UsageError, match="give one size"):
        make_plan(target, [shaped], [prompt], params, [1], batch=(1, 2))
    with pytest.raises(UsageError, match="ends with its first token"):
        make_plan(target, [ngram], [prompt], SamplingParams(max_tokens=1, seed=0), [1])
