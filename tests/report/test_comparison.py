"""Results held against each other: what was foretold beside what was measured, and runs side by
side."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

from draftproof.report.comparison import comparisons, differing, foretold_result, measured_result
from draftproof.report.figures import HEIGHT, styles
from draftproof.report.page import section

WHERE = {"target": "T", "dtype": "float32", "device": "cpu", "commit": "a"}
PARAMS = {"temperature": 0.0, "seed": 0}


def bench(ratio: float, *, config: Any = None, **changes: Any) -> dict[str, Any]:
    """Plain decoding and one arm, `ratio` times as fast."""
    ours = config or {"method": "ngram", "num_speculative_tokens": 4}
    arms = [
        {
            "name": name,
            "config": own,
            "tokens_per_second": 10.0 * speed,
            "ratio_to_plain": {"median": speed, "low": 0.9 * speed, "high": 1.1 * speed},
            "decode_ratio_of_totals": speed,
            "stats": {"tokens_per_round": speed, "draft_acceptance_rate": None},
        }
        for name, own, speed in (("plain", None, 1.0), ("ngram k=4", ours, ratio))
    ]
    about = {"prompts": [{"workload": "chat"}], "provenance": WHERE, "params": PARAMS}
    document = {"format": "draftproof.bench", "arms": arms} | about
    return document | changes


def plan(point: float, *, config: Any = None, tree: Any = None, **changes: Any) -> dict[str, Any]:
    """One drafter with two lengths; four drafts are foretold to bring `point`."""
    choices = [
        {
            "drafter": "ngram",
            "method": "ngram",
            "num_speculative_tokens": k,
            "tree": tree,
            "tokens_per_round": 2.0,
            "speedup": {"point": point, "low": 0.9 * point, "high": 1.1 * point},
        }
        for k in (2, 4)
    ]
    drafters = [
        {"drafter": "ngram", "config": config or {"method": "ngram", "num_speculative_tokens": 5}}
    ]
    document = {
        "format": "draftproof.plan",
        "choices": choices,
        "drafters": drafters,
        "provenance": WHERE,
        "params": PARAMS,
    }
    return document | changes


def test_an_arm_stands_beside_the_choice_that_foretold_it() -> None:
    found = foretold_result([("p.json", plan(1.05)), ("b.json", bench(1.0))])
    assert found is not None
    (row,) = found.rows
    assert (
        row["drafts"] == 4
        and row["measured"] == 1.0
        and row["difference"] == "+5%"
        and row["inside"] == "yes"
    )
    assert row["results"] == "p.json, b.json" and "1 of 1 measured" in found.notes[0]
    missed = foretold_result([("p.json", plan(1.5)), ("b.json", bench(1.0))])
    assert missed is not None and missed.rows[0]["inside"] == "no" and "0 of 1" in missed.notes[0]


@pytest.mark.parametrize(
    ("plan_changes", "bench_changes"),
    [
        ({"provenance": WHERE | {"target": "other"}}, {}),
        ({"params": {"temperature": 0.7}}, {}),
        ({"config": {"method": "ngram", "rule": "token"}}, {}),
        ({"config": {"method": "ngram", "prompt_lookup_max": 2}}, {}),
        ({"tree": [-1, -1]}, {}),
        ({}, {"config": {"method": "ngram", "num_speculative_tokens": 3}}),
        ({}, {"config": {"method": "ngram", "num_speculative_tokens": 4, "adaptive": True}}),
    ],
)
def test_what_was_not_foretold_is_not_held_against_a_plan(
    plan_changes: Any, bench_changes: Any
) -> None:
    assert (
        foretold_result([("p", plan(1.05, **plan_changes)), ("b", bench(1.0, **bench_changes))])
        is None
    )


def test_runs_stand_side_by_side_and_say_in_what_they_differ() -> None:
    first = bench(1.2)
    second = bench(1.4, provenance=WHERE | {"commit": "b"}, prompts=[{"workload": "code"}] * 2)
    found = measured_result([("a", first), ("b", second)])
    assert found is not None
    assert [(row["name"], row["result"]) for row in found.rows] == [
        *(("plain", "a"), ("plain", "b")),
        *(("ngram k=4", "a"), ("ngram k=4", "b")),
    ]
    assert found.rows[3]["ratio"] == "1.40 (1.26-1.54)"
    assert list(found.notes) == [
        "they differ in commit: a has a; b has b",
        "they differ in prompts: a has 1 (chat); b has 2 (code)",
    ]
    assert "nothing that was recorded" in differing([("a", first), ("b", first)])[0]
    assert measured_result([("a", first), ("p", plan(1.0))]) is None
    pages = [
        section(result) for result in comparisons([("a", first), ("b", second), ("p", plan(1.0))])
    ]
    assert len(pages) == 2 and all("<svg" in page for page in pages)


def test_every_result_has_a_look_of_its_own_and_every_arm_a_row() -> None:
    """Eight results of twelve arms: six colours are not enough, and no label may lie on another."""
    document = bench(1.0)
    arms = [document["arms"][1] | {"name": f"arm {number}"} for number in range(12)]
    found = measured_result([(f"run {number}", document | {"arms": arms}) for number in range(8)])
    assert found is not None
    drawn = Figure()
    found.draw(drawn)
    (axes,) = drawn.axes
    shown = [(bar.lines[0].get_color(), bar.lines[0].get_marker()) for bar in axes.containers]
    assert len(set(shown)) == len(shown) == 8 and len(axes.get_yticklabels()) == 12
    assert len(axes.get_legend().get_texts()) == 8 and drawn.get_figheight() > HEIGHT


def test_every_drafter_that_was_foretold_is_drawn() -> None:
    """Ten draft models of one method are ten drafters."""
    configs = [
        {"method": "draft_model", "model": f"/models/m{i}", "num_speculative_tokens": 4}
        for i in range(10)
    ]
    whole = [plan(1.05, config=config) for config in configs]
    for one, config in zip(whole, configs, strict=True):
        name = f"draft_model {config['model']}"
        one["drafters"][0]["drafter"] = name
        one["choices"] = [
            choice | {"drafter": name, "method": "draft_model"} for choice in one["choices"]
        ]
    document = bench(1.0)
    arms = [
        document["arms"][1] | {"name": f"a{i}", "config": config}
        for i, config in enumerate(configs)
    ]
    plans: list[tuple[str, dict[str, Any]]] = [(f"p{i}", one) for i, one in enumerate(whole)]
    found = foretold_result([*plans, ("b", document | {"arms": arms})])
    assert found is not None and [row["drafter"] for row in found.rows] == [
        f"m{i}" for i in range(10)
    ]
    drawn = Figure()
    found.draw(drawn)
    assert [text.get_text() for text in drawn.axes[0].get_legend().get_texts()] == [
        f"m{i}" for i in range(10)
    ]


def test_styles_do_not_repeat() -> None:
    pairs = [(style["color"], style["marker"]) for style in styles(36)]
    assert len(set(pairs)) == 36
