"""Every number on the lab's pages, computed by the library."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from draftproof.core.formulas import (
    acceptance_rate,
    best_draft_length,
    break_even_cost,
    expected_speedup,
    expected_tokens,
)
from draftproof.core.laws import residual
from draftproof.experiments.exact import exact_law, tv
from draftproof.experiments.markov import (
    STRETCHES_DRAFT,
    STRETCHES_TARGET,
    average_alpha,
    exact_tokens_per_round,
)
from draftproof.experiments.registry import EXPERIMENTS, Settings, run
from draftproof.experiments.rounds import ROUNDS
from draftproof.experiments.toy import (
    PAIR_DRAFT,
    PAIR_TARGET,
    PREFIX,
    chain_draft,
    chain_law,
    chain_target,
)
from draftproof.simulate.batch import BatchModel
from draftproof.simulate.presets import CARDS, MODELS

LAB = Path(__file__).parents[2] / "labs" / "14_speculative_decoding"


def words(name: str) -> str:
    return " ".join((LAB / name).read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def answers() -> list[str]:
    found = re.findall(r"<summary>Answer</summary>(.*?)</details>", words("check_yourself.md"))
    assert len(found) == 7
    return found


@pytest.fixture(scope="module")
def readme() -> str:
    return words("README.md")


def exact_tv(name: str) -> float:
    return tv(exact_law(ROUNDS[name], chain_target, chain_draft, PREFIX, 2, 2), chain_law())


def test_answer_1_alpha_acceptance_and_residual(answers: list[str]) -> None:
    assert f"alpha = {acceptance_rate(PAIR_TARGET, PAIR_DRAFT):.1f}." in answers[0]
    assert f"min(1, 0.2 / 0.4) = {min(1, PAIR_TARGET[2] / PAIR_DRAFT[2]):g}" in answers[0]
    left = residual(PAIR_TARGET, PAIR_DRAFT)
    assert (
        left == pytest.approx([0.2, 0, 0])
        and "[0.2, 0, 0]" in answers[0]
        and "always token 0" in answers[0]
    )


def test_answer_2_tokens_and_speedup(answers: list[str]) -> None:
    assert (
        f"= {expected_tokens(0.8, 4):.4f} tokens" in answers[1]
        and f"{expected_speedup(0.8, 4, 0.05):.2f}x" in answers[1]
    )


def test_answer_3_the_proof_holds_for_any_pair(answers: list[str]) -> None:
    target, draft = np.random.default_rng(0).dirichlet(np.ones(9), size=2)
    accepted, alpha = np.minimum(target, draft), acceptance_rate(target, draft)
    replaced = (1 - alpha) * residual(target, draft) / residual(target, draft).sum()
    assert accepted + replaced == pytest.approx(target) and residual(
        target, draft
    ).sum() == pytest.approx(1 - alpha)
    assert "min(p, q)(x)" in answers[2] and "max(0, p - q)(x)" in answers[2]


def test_answer_4_going_on_after_a_rejection(answers: list[str]) -> None:
    assert f"TV {exact_tv('keep verifying after a rejection'):.2f}" in answers[3]


def test_answer_5_a_dear_drafter(answers: list[str]) -> None:
    assert best_draft_length(0.6, 0.32) == 1
    one, two = expected_speedup(0.6, [1, 2], 0.32)
    assert f"One draft, {one:.2f}x" in answers[4] and f"{two:.2f}x" in answers[4]


def test_answer_6_argmax_while_sampling(answers: list[str]) -> None:
    assert f"TV {exact_tv('argmax check while sampling'):.2f}" in answers[5]


def test_answer_7_verification_in_a_batch(answers: list[str]) -> None:
    model = BatchModel(CARDS["H100-SXM"], MODELS["Llama-3.1-8B"], MODELS["Llama-3.2-1B"])
    at_1, at_64, at_256 = model.verify_ratio([1, 64, 256], 1024, 5)
    assert (
        f"{at_1:.2f} plain steps at batch 1, {at_64:.2f} at 64 and {at_256:.2f} at 256"
        in answers[6]
    )


@pytest.mark.parametrize("alpha", [0.6, 0.8])
def test_the_table_of_part_4(readme: str, alpha: float) -> None:
    lengths = np.arange(1, 11)
    for label, values in (
        ("tokens", expected_tokens(alpha, lengths)),
        ("speedup", expected_speedup(alpha, lengths, 0.05)),
    ):
        cells = [f"{value:.2f}" for value in values]
        if label == "speedup":
            best = int(best_draft_length(alpha, 0.05))
            cells[best - 1] = f"**{cells[best - 1]}**"
        assert f"| alpha {alpha}: {label} | {' | '.join(cells)} |" in readme


def test_the_numbers_around_it(readme: str) -> None:
    assert (
        f"c < {break_even_cost(0.8, 4):.2f} for alpha 0.8 and c < "
        f"{break_even_cost(0.6, 4):.2f} for alpha 0.6"
    ) in readme
    assert best_draft_length(0.8, 0.32) == 3
    best = expected_speedup(0.8, 3, 0.32), expected_speedup(0.6, 1, 0.32)
    assert (
        f"{best[0]:.2f}x with k = 3 at alpha 0.8, and {best[1]:.2f}x with k = 1 at alpha 0.6"
        in readme
    )
    with_v, without = expected_speedup(0.8, 5, 0.11, 2.9), expected_speedup(0.8, 5, 0.11)
    assert f"the speedup is {with_v:.2f} instead of {without:.2f}" in readme
    formula = expected_tokens(average_alpha(STRETCHES_TARGET, STRETCHES_DRAFT), 6)
    truth = exact_tokens_per_round(STRETCHES_TARGET, STRETCHES_DRAFT, 6)
    assert f"{formula:.2f} tokens promised, {truth:.2f} true" in readme
    assert f"TV {run('greedy-drafter', Settings(runs=10)).rows[1]['tv_exact']:.2f})" in readme


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("correct | 0 |", "correct"),
        ("no bonus token (exact, but 12% fewer tokens) | 0 |", "no bonus token"),
        ("replacement drawn from p | 0.166 |", "resample from the target, not the residual"),
        ("keep verifying after a rejection | 0.18 |", "keep verifying after a rejection"),
        ("ratio upside down, min(1, q/p) | 0.52 |", "ratio inverted"),
        ("drafts emitted without verification | 0.52 |", "no verification"),
        ("target law off by one position | 0.61 |", "target off by one position"),
        ("argmax check while sampling | 0.64 |", "argmax check while sampling"),
    ],
)
def test_the_table_of_part_6(readme: str, row: str, name: str) -> None:
    assert f"| {row}" in readme
    assert float(row.split("|")[1]) == pytest.approx(exact_tv(name), abs=0.0005)


def test_the_curve_of_part_10(readme: str) -> None:
    model = BatchModel(CARDS["H100-SXM"], MODELS["Llama-3.1-8B"], MODELS["Llama-3.2-1B"])
    found = [
        model.row(0.8, batch, context)["speedup"]
        for batch, context in ((1, 1024), (256, 1024), (256, 32768))
    ]
    assert found == pytest.approx([2.0, 1.25, 1.65], abs=0.02)
    assert (
        "about 2x for one sequence to about 1.25x for 256" in readme
        and "near 1.65x with 32,000" in readme
    )


def test_the_page_names_every_experiment_and_every_stretch_task(readme: str) -> None:
    assert all(f"`{name}`" in readme for name in EXPERIMENTS)
    for folder in (LAB / "stretch").iterdir():
        if (folder / "starter.py").exists():
            assert f"`stretch/{folder.name}`" in readme
            assert {"starter.py", "solution.py", f"test_{folder.name}.py"} <= {
                path.name for path in folder.iterdir()
            }
