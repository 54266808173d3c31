"""The lab as a learner meets it, in processes of their own: the reference, the starter, wrong
solutions in a copy."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from draftproof.experiments.exact import exact_law, tv
from draftproof.experiments.rounds import ROUNDS
from draftproof.experiments.toy import PREFIX, chain_draft, chain_law, chain_target

ROOT = Path(__file__).parents[2]
LAB = ROOT / "labs" / "14_speculative_decoding"
STRETCH = sorted(
    path.name for path in (LAB / "stretch").iterdir() if (path / "starter.py").exists()
)
NAMES = (
    "test_output_distribution_is_exactly_the_target",
    "test_tokens_per_step_matches_theory",
    "test_formulas",
)


def pytest_in_a_process(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, check=False
    )


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"labtest_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_passes_three_tests_named_as_documented() -> None:
    run = pytest_in_a_process("labs/14_speculative_decoding", "--impl=solution")
    assert run.returncode == 0, run.stdout
    assert all(f"{name} PASSED" in run.stdout for name in NAMES) and "3 passed" in run.stdout


def test_the_starter_fails_and_says_what_to_do() -> None:
    run = pytest_in_a_process("labs/14_speculative_decoding")
    assert run.returncode == 1 and "3 failed" in run.stdout
    assert (
        "not written yet: speculative_step is still to be written: README.md, part 2" in run.stdout
    )
    assert "not written yet: expected_tokens is still to be written" in run.stdout
    assert "Traceback" not in run.stdout and "NotImplementedError" not in run.stdout


def test_the_lab_needs_no_plugin_and_no_setting_of_the_project() -> None:
    """With the plugins that the project's settings ask for switched off, as for a learner who
    installed pytest alone."""
    run = pytest_in_a_process("labs/14_speculative_decoding", "-p", "no:timeout", "-p", "no:xdist")
    assert (
        run.returncode == 1
        and "3 failed" in run.stdout
        and "INTERNALERROR" not in run.stdout + run.stderr
    )


def test_the_default_test_paths_leave_the_lab_out(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("testpaths") == ["tests"] and not LAB.is_relative_to(ROOT / "tests")


@pytest.mark.slow
def test_stretch_references_pass() -> None:
    run = pytest_in_a_process("labs/14_speculative_decoding/stretch", "--impl=solution")
    assert run.returncode == 0, run.stdout
    assert all(f"stretch/{task}/test_{task}.py" in run.stdout for task in STRETCH)


def test_stretch_starters_fail_and_say_what_to_do() -> None:
    run = pytest_in_a_process("labs/14_speculative_decoding/stretch")
    assert run.returncode == 1 and " passed" not in run.stdout
    for sentence in (
        "draft_tree",
        "tree_step",
        "prompt_lookup",
        "lookup_step",
        "AdaptiveLength",
        "train_head",
    ):
        assert f"{sentence} is still to be written" in run.stdout


def test_all_stretch_tasks_are_there() -> None:
    assert STRETCH == ["adaptive_length", "linear_head", "prompt_lookup", "tree_drafts"]


MISTAKES = {
    "residual = np.maximum(p - q, 0.0)": (
        "residual = p",
        NAMES[0],
        "draw the replacement from p; draw it from the normalised",
    ),
    "p = p_fn(prefix + tuple(drafts))\n": (
        "if drafts:\n        return drafts\n    p = p_fn(prefix)\n",
        NAMES[1],
        "the bonus token is missing",
    ),
    "if alpha == 1.0:": (
        "if alpha == 2.0:",
        NAMES[2],
        "is k + 1 = 6 there: return that before dividing",
    ),
    "rng.random() <": (
        "np.random.random() <",
        NAMES[0],
        "draw every random number from the rng you are given",
    ),
    "left = residual / residual.sum() if residual.sum() > 0 else p": (
        "left = residual",
        NAMES[0],
        "draws from something that is no law: divide the residual by its sum",
    ),
    "return [*drafts[:i], int(rng": ("return int(rng", NAMES[0], "must return a list of token ids"),
}


@pytest.mark.slow
@pytest.mark.parametrize("line", MISTAKES)
def test_a_wrong_solution_fails_with_a_hint(line: str, tmp_path: Path) -> None:
    """In a copy of the lab outside the project, as somebody who downloaded the folder has it."""
    change, name, hint = MISTAKES[line]
    shutil.copytree(LAB, tmp_path / "lab", ignore=shutil.ignore_patterns("stretch", "__pycache__"))
    source = (LAB / "solution.py").read_text(encoding="utf-8")
    assert source.count(line) == 1
    source = source.replace(line, change)
    if change.startswith("return int"):
        source = source.replace("p=left))]", "p=left))")
    (tmp_path / "lab" / "speculative.py").write_text(source, encoding="utf-8")
    run = pytest_in_a_process("lab", "-k", name, folder=tmp_path)
    assert run.returncode == 1 and "1 failed" in run.stdout, run.stdout
    assert hint in run.stdout


DRAWS = {
    "draft": "drafts.append(int(rng.choice(len(law), p=law)))",
    "coin": "if rng.random() <",
    "replacement": "return [*drafts[:i], int(rng.choice",
    "bonus": "return [*drafts, int(rng.choice",
}
ELSEWHERE = {
    "np.random": ("np.random.choice", "np.random.random"),
    "a fresh generator": ("np.random.default_rng().choice", "np.random.default_rng().random"),
    "Python's random": (
        "(lambda n, p: __import__('random').choices(range(n), p)[0])",
        "__import__('random').random",
    ),
}


def changed(file: Path, line: str, source: str) -> SimpleNamespace:
    """The functions of `file` with the draws in `line` taken from another source."""
    code, (choice, coin) = file.read_text(encoding="utf-8"), ELSEWHERE[source]
    assert line in code
    functions: dict[str, Any] = {"__name__": "changed"}
    exec(
        code.replace(line, line.replace("rng.choice", choice).replace("rng.random", coin)),
        functions,
    )
    return SimpleNamespace(**functions)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("source", ELSEWHERE)
def test_a_draw_from_elsewhere_is_told(draw: str, source: str) -> None:
    """Every single draw of the reference, taken from a source that nobody seeds."""
    lab = changed(LAB / "solution.py", DRAWS[draw], source)
    with pytest.raises(AssertionError, match="draw every random number from the rng you are given"):
        load(LAB / "test_speculative.py").check_one_generator(lab, load(LAB / "diagnosis.py"))


@pytest.mark.parametrize("task", ["tree_drafts", "prompt_lookup"])
@pytest.mark.parametrize("source", ELSEWHERE)
def test_a_stretch_task_that_draws_elsewhere_is_told(task: str, source: str) -> None:
    folder = LAB / "stretch" / task
    for line in ("rng.random()", "rng.choice("):
        lab = changed(folder / "solution.py", line, source)
        with pytest.raises(
            AssertionError, match="draw every random number from the rng you are given"
        ):
            test = load(folder / f"test_{task}.py").test_output_distribution_is_exactly_the_target
            test(lab, load(LAB / "diagnosis.py"))


def test_the_reference_always_repeats_itself() -> None:
    """However the other generators of the process stand."""
    check, reference, diagnosis = (
        load(LAB / f"{name}.py") for name in ("test_speculative", "solution", "diagnosis")
    )
    for seed in range(20):
        np.random.seed(seed)  # noqa: NPY002 (the generator a learner should not use)
        random.seed(seed)
        check.check_one_generator(SimpleNamespace(**vars(reference)), diagnosis)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resample from the target, not the residual", "draw the replacement from p"),
        ("keep verifying after a rejection", "you go on verifying after a rejection"),
        ("ratio inverted", "the ratio is upside down"),
        ("no verification", "nothing is verified"),
        ("argmax check while sampling", "every token is the target's favourite"),
        ("target off by one position", "one position too late"),
    ],
)
def test_every_fault_has_its_hint(name: str, hint: str) -> None:
    law = exact_law(ROUNDS[name], chain_target, chain_draft, PREFIX, 2, 2)
    noise = np.random.default_rng(0).multinomial(30_000, law.ravel()).reshape(3, 3) / 30_000
    assert hint in load(LAB / "diagnosis.py").hint_for_law(noise)


def test_other_laws_and_means_get_advice() -> None:
    diagnosis = load(LAB / "diagnosis.py")
    assert "no fault this file knows" in diagnosis.hint_for_law(np.full((3, 3), 1 / 9))
    assert "bonus token is missing" in diagnosis.hint_for_mean(2.95)
    assert "too long" in diagnosis.hint_for_mean(5.0) and "too short" in diagnosis.hint_for_mean(
        1.2
    )


def test_a_division_by_zero_is_told_apart_from_a_wrong_denominator() -> None:
    diagnosis = load(LAB / "diagnosis.py")
    assert "0/0 at alpha = 1" in diagnosis.hint_for_division(1.0, 5)
    assert "division by zero at alpha = 0.5" in diagnosis.hint_for_division(0.5, 5)


def test_the_hints_know_the_exact_laws_of_the_faults() -> None:
    faults = load(LAB / "diagnosis.py").FAULTS
    exact = [exact_law(play, chain_target, chain_draft, PREFIX, 2, 2) for play in ROUNDS.values()]
    for hint, law in faults.items():
        assert min(tv(law, other) for other in exact) < 1e-12, hint
        assert tv(law, chain_law()) > 0.15, hint
    wrong = [law for law in exact if tv(law, chain_law()) > 1e-9]
    assert all(min(tv(law, known) for known in faults.values()) < 1e-12 for law in wrong)


def test_the_lab_uses_the_chain_of_the_experiments() -> None:
    module = load(LAB / "test_speculative.py")
    assert np.array_equal(module.TARGET, [chain_target((x,)) for x in range(3)])
    assert np.array_equal(module.DRAFTER, [chain_draft((x,)) for x in range(3)])
