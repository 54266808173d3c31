"""Every experiment: its table, its claims, its figure. Sampling is small here; what it shows does
not depend on it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from draftproof.core.formulas import expected_tokens
from draftproof.errors import UsageError
from draftproof.experiments.greedy_drafter import PROGRAMS
from draftproof.experiments.markov import CHAINS, exact_tokens_per_round
from draftproof.experiments.registry import EXPERIMENTS, Settings, run
from draftproof.experiments.temperature import alpha_at, correlated_logits
from draftproof.report.figures import save_figure
from draftproof.report.result import Result
from draftproof.report.tables import json_line, print_result

SMALL = {"noise": 4000, "markov": 500, "temperature": 40, "greedy-drafter": 2000, "bugs": 1000}


@pytest.fixture(scope="module", params=EXPERIMENTS)
def result(request: pytest.FixtureRequest) -> Result:
    return run(request.param, Settings(runs=SMALL.get(request.param)))


def test_the_table_fits_80_columns(
    result: Result, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_result(result)
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines()) and "…" not in printed
    assert len(result.rows) >= 3 and result.title in printed


def test_the_json_document(result: Result) -> None:
    document = json.loads(json_line(result.document()))
    assert document["name"] == result.name and len(document["rows"]) == len(result.rows)
    keys = {column.key for column in result.columns}
    assert all(keys <= row.keys() for row in document["rows"])


def test_the_figure_is_drawn_labelled_and_saved_twice(result: Result, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    png, svg = save_figure(result.draw, tmp_path / "new", result.name)
    assert (
        png.name == f"{result.name}.png"
        and png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        and png.stat().st_size > 20_000
    )
    assert "<svg" in svg.read_text(encoding="utf-8")
    figure = Figure()
    result.draw(figure)
    for axes in figure.axes:
        assert axes.get_ylabel() or axes.get_yticklabels()
    assert all(axes.get_xlabel() for axes in figure.axes if axes.get_label() != "<colorbar>")


def test_bugs_prints_published_sampled_and_exact_side_by_side() -> None:
    """30,000 runs of each: exact samplers stay below 0.015 (fewer than 1 in 100,000 fails), biased
    ones within 0.015 of their exact distance, which is five standard deviations of the sampled
    one."""
    found = run("bugs", Settings(seed=1, runs=30_000))
    for row in found.rows:
        assert abs(row["tv_sampled"] - row["tv_exact"]) < 0.015
        assert row["tv_published"] == pytest.approx(row["tv_exact"], abs=0.013)
    assert found.data["round_length"]["std"] == pytest.approx(1.60, abs=0.005)
    assert found.data["round_length"]["standard_error"] == pytest.approx(0.011, abs=0.0005)
    assert found.data["round_length"]["mean_without_bonus"] == pytest.approx(2.952)
    assert found.data["noise_floor"]["mean"] == pytest.approx(0.0056, abs=0.0002)
    assert any("12% fewer" in note for note in found.notes)


def test_noise_falls_and_bias_stays() -> None:
    """10,000 runs: noise 0.0096 on average and below 0.026 always; the bias of 0.166 wobbles by
    about 0.005."""
    found = run("noise", Settings(runs=10_000))
    first, last = found.rows[0], found.rows[-1]
    assert last["runs"] == 10_000 and last["tv_correct"] < 0.03
    assert last["tv_biased"] == pytest.approx(found.data["bias"], abs=0.03) and found.data[
        "bias"
    ] == pytest.approx(0.1664)
    assert first["tv_expected_noise"] / last["tv_expected_noise"] == pytest.approx(
        np.sqrt(10_000 / first["runs"])
    )


def test_markov_simulation_exact_value_and_formula() -> None:
    """8,000 rounds of at most 7 tokens in long stretches: standard error below 0.03, five of
    them."""
    found = run("markov", Settings(runs=8000))
    assert [row["num_speculative_tokens"] for row in found.rows] == [1, 2, 3, 4, 5, 6] * 2
    for row in found.rows:
        assert row["simulated"] == pytest.approx(row["exact"], abs=0.15)
    lab, stretches = found.rows[:6], found.rows[6:]
    assert all(abs(row["error"]) < 0.002 for row in lab)
    assert all(row["error"] > 0.03 for row in stretches)
    assert any("82% of the places" in note for note in found.notes)


def test_the_exact_markov_value_is_the_closed_form_where_alpha_is_constant() -> None:
    target = CHAINS["lab's chain"][0]
    even = 0.7 * target + 0.3 * np.roll(target, 1, axis=1)
    alpha = np.minimum(target, even).sum(axis=1)
    assert exact_tokens_per_round(target, target, 3) == pytest.approx(4)
    flat = np.tile(target[:1], (3, 1))
    assert exact_tokens_per_round(flat, np.tile(even[:1], (3, 1)), 3) == pytest.approx(
        expected_tokens(alpha[0], 3)
    )


def test_both_ends_of_temperature() -> None:
    """Hot: laws are uniform and alpha is 1. Cold: alpha is 1 where the favourites agree and 0 where
    they do not."""
    target, draft = correlated_logits(0.9, 100, np.random.default_rng(0))
    assert alpha_at(target, draft, 1e6).min() > 1 - 1e-4
    cold, same = alpha_at(target, draft, 1e-6), target.argmax(axis=1) == draft.argmax(axis=1)
    assert np.allclose(cold, same, atol=1e-6) and 0 < same.mean() < 1


def test_temperature_rows_show_both_ends() -> None:
    for row in run("temperature", Settings(runs=100)).rows:
        assert row["alpha_0.01"] == pytest.approx(row["same_favourite"], abs=0.03)
        assert row["alpha_100"] > 0.98


def test_greedy_drafter_is_exact_with_its_one_hot_law_and_biased_with_its_softmax() -> None:
    one_hot, softmax, sampled = run("greedy-drafter", Settings(runs=3000)).rows
    assert [row["program"] for row in (one_hot, softmax, sampled)] == list(PROGRAMS)
    assert one_hot["tv_exact"] < 1e-15 and sampled["tv_exact"] < 1e-15
    assert softmax["tv_exact"] == pytest.approx(0.39) and softmax["tv_sampled"] == pytest.approx(
        0.39, abs=0.06
    )
    assert one_hot["tokens_per_round"] == pytest.approx(1 + 0.3 * (1 + 0.2))


def test_best_length_agrees_with_the_published_best() -> None:
    rows = {(row["alpha"], row["cost_ratio"]): row for row in run("best-length").rows}
    assert (
        rows[0.8, 0.32]["num_speculative_tokens"] == 3
        and f"{rows[0.8, 0.32]['speedup']:.2f}" == "1.51"
    )
    assert (
        rows[0.6, 0.32]["num_speculative_tokens"] == 1
        and f"{rows[0.6, 0.32]['speedup']:.2f}" == "1.21"
    )
    assert rows[0.5, 0.6]["num_speculative_tokens"] == 0


def test_the_bonus_is_worth_12_percent_at_alpha_08_and_four_drafts() -> None:
    rows = {(row["alpha"], row["num_speculative_tokens"]): row for row in run("bonus").rows}
    row = rows[0.8, 4]
    assert (
        f"{row['tokens_with']:.2f} {row['tokens_without']:.2f} {row['loss']:.0%}" == "3.36 2.95 12%"
    )
    assert rows[0.6, 1]["tokens_without"] == pytest.approx(1.0)


def test_equal_seeds_equal_numbers() -> None:
    first, again, other = (
        run("greedy-drafter", Settings(seed, 500)).document() for seed in (1, 1, 2)
    )
    assert first == again and first["rows"] != other["rows"]


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("sorcery", Settings(), "there is no experiment 'sorcery'; choose from noise, markov"),
        (
            "bonus",
            Settings(seed=1),
            "the experiment bonus has no chance in it, so it takes no seed",
        ),
        ("best-length", Settings(1, 2), "takes no runs and no seed"),
        ("bugs", Settings(runs=0), "runs must be a whole number of at least 1, got 0"),
        ("bugs", Settings(seed=-1), "seed must be a whole number of at least 0, got -1"),
    ],
)
def test_what_cannot_be_run(name: str, settings: Settings, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        run(name, settings)
