"""`speculative_step` runs the library's own rule on plain functions: exact law, its rng alone, the
lab's reference as twin."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import draftproof
from draftproof.core.chance import Chance, Purpose
from draftproof.core.records import ROOT, Draft
from draftproof.core.step import FunctionLaws, GeneratorChance, round_tokens, speculative_step
from draftproof.errors import UsageError
from draftproof.experiments.exact import exact_law, exact_round_length, tv
from draftproof.experiments.rounds import ROUNDS
from draftproof.experiments.toy import (
    PREFIX,
    chain_draft,
    chain_law,
    chain_target,
    pair_draft,
    pair_target,
)

SOLUTION = Path(__file__).parents[2] / "labs" / "14_speculative_decoding" / "solution.py"


def history_target(prefix: tuple[int, ...]) -> np.ndarray:
    """A law that depends on the whole prefix, with an exact zero."""
    law = np.random.default_rng(abs(hash(prefix)) % 2**32).dirichlet(np.ones(4))
    law[len(prefix) % 4] = 0.0
    return law / law.sum()


def history_draft(prefix: tuple[int, ...]) -> np.ndarray:
    law = np.random.default_rng(abs(hash((9, *prefix))) % 2**32).dirichlet(np.ones(4) / 2)
    law[(len(prefix) + sum(prefix)) % 4] = 0.0
    return law / law.sum()


def target_law(
    fn: Callable[[tuple[int, ...]], np.ndarray], prefix: tuple[int, ...], num_tokens: int
) -> np.ndarray:
    law = fn(prefix)
    if num_tokens == 1:
        return law
    return np.stack(
        [law[x] * target_law(fn, (*prefix, x), num_tokens - 1) for x in range(len(law))]
    )


@pytest.mark.parametrize("k", range(4))
def test_the_law_of_the_chain_is_exact(k: int) -> None:
    assert tv(exact_law(round_tokens, chain_target, chain_draft, PREFIX, 2, k), chain_law()) < 1e-15


def test_the_law_is_exact_where_everything_depends_on_the_whole_prefix() -> None:
    law = exact_law(round_tokens, history_target, history_draft, (3, 1), 3, 3)
    assert tv(law, target_law(history_target, (3, 1), 3)) < 1e-14


def test_round_length_is_the_formula() -> None:
    assert exact_round_length(round_tokens, pair_target, pair_draft, (), 4) == pytest.approx(
        3.3616, abs=1e-12
    )


class _Coin:
    """What `rng.random()` returns under enumeration: comparing it with a number is a branch."""

    def __init__(self, chance: Chance, node: int) -> None:
        self._chance, self._node = chance, node

    def __lt__(self, probability: float) -> bool:
        return self._chance.bernoulli(float(probability), Purpose.ACCEPT, self._node)


class _EnumeratedRng:
    """A stand-in for a generator, so that the lab's plain program can have its outcomes summed."""

    def __init__(self, chance: Chance) -> None:
        self._chance, self._coins, self._draws = chance, 0, 0

    def random(self) -> _Coin:
        self._coins += 1
        return _Coin(self._chance, self._coins)

    def choice(self, size: int, p: np.ndarray) -> int:
        assert size == len(p)
        self._draws += 1
        return int(self._chance.draw(p, Purpose.DRAFT, self._draws))


@pytest.fixture(scope="module")
def solution() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lab14_reference", SOLUTION)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize(
    "models",
    [(chain_target, chain_draft), (history_target, history_draft)],
    ids=["chain", "history"],
)
def test_the_lab_reference_is_the_slow_twin(
    solution: ModuleType, models: tuple[Any, Any], k: int
) -> None:
    """Equal laws of whole rounds, not only of their first tokens."""

    def twin(p_fn: Any, q_fn: Any, prefix: tuple[int, ...], k: int, chance: Chance) -> list[int]:
        return solution.speculative_step(p_fn, q_fn, prefix, k, _EnumeratedRng(chance))  # type: ignore[no-any-return]

    assert round_laws(twin, models, k) == pytest.approx(
        round_laws(round_tokens, models, k), abs=1e-14
    )
    assert round_laws(ROUNDS["correct"], models, k) == pytest.approx(
        round_laws(round_tokens, models, k), abs=1e-14
    )


def round_laws(play: Any, models: tuple[Any, Any], k: int) -> dict[tuple[int, ...], float]:
    from draftproof.core.enumerate import outcomes

    law: dict[tuple[int, ...], float] = {}
    for outcome, tokens in outcomes(lambda chance: play(*models, (0,), k, chance), 1):
        law[tuple(tokens)] = law.get(tuple(tokens), 0.0) + outcome.probability
    return {tokens: law[tokens] for tokens in sorted(law) if law[tokens] > 1e-15}


def test_drawn_pairs_have_the_target_law() -> None:
    """6,000 runs. An exact sampler fails in fewer than 1 of 100,000 tries; the mildest fault of
    `ROUNDS` is at TV 0.166."""
    rng, counts, runs = np.random.default_rng(3), np.zeros((3, 3)), 6000
    for _ in range(runs):
        out: list[int] = []
        while len(out) < 2:
            out += speculative_step(chain_target, chain_draft, (0, *out), 2, rng)
        counts[out[0], out[1]] += 1
    assert tv(counts / runs, chain_law()) < 0.034


def test_all_randomness_comes_from_the_generator_given() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002  # the global generator must not be touched
    runs = [
        [speculative_step(chain_target, chain_draft, PREFIX, 4, rng) for _ in range(30)]
        for rng in (np.random.default_rng(5), np.random.default_rng(5), np.random.default_rng(6))
    ]
    assert runs[0] == runs[1] != runs[2]
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_shape_and_public_name() -> None:
    tokens = draftproof.speculative_step(
        chain_target, chain_draft, [0], np.int64(3), np.random.default_rng(0)
    )
    assert (
        isinstance(tokens, list)
        and all(type(token) is int for token in tokens)
        and 1 <= len(tokens) <= 4
    )
    assert (
        len(speculative_step(chain_target, chain_draft, PREFIX, 0, np.random.default_rng(0))) == 1
    )


def test_equal_laws_accept_everything() -> None:
    rng = np.random.default_rng(0)
    assert all(
        len(speculative_step(chain_target, chain_target, PREFIX, 5, rng)) == 6 for _ in range(200)
    )


def test_a_token_the_target_forbids_never_comes_out() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        tokens = speculative_step(lambda _: [0.0, 1.0, 0.0], lambda _: [0.5, 0.0, 0.5], (), 2, rng)
        assert tokens == [1]


@pytest.mark.parametrize(
    ("p", "q", "k", "sentence"),
    [
        (
            [0.5, 0.4],
            [0.5, 0.5],
            2,
            "p_fn's law must sum to 1 over the vocabulary, got a sum of 0.9",
        ),
        ([0.5, 0.5], [-0.5, 1.5], 2, "q_fn's law must have no negative entries, got -0.5"),
        ([0.5, 0.5], [0.5, 0.5], -1, "k must be a whole number of at least 0, got -1"),
        ([0.5, 0.5], [0.5, 0.5], 1.5, "k must be a whole number of at least 0, got 1.5"),
    ],
)
def test_wrong_input_is_named(p: list[float], q: list[float], k: float, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        speculative_step(lambda _: p, lambda _: q, (), k, np.random.default_rng(0))  # type: ignore[arg-type]
    assert str(caught.value) == sentence


def test_generator_chance_keeps_the_promises_of_chance() -> None:
    chance = GeneratorChance(np.random.default_rng(0))
    assert not any(chance.bernoulli(0.0, Purpose.ACCEPT, 0) for _ in range(100))
    assert all(chance.bernoulli(1.0, Purpose.ACCEPT, 0) for _ in range(100))
    assert {int(chance.draw(np.array([0.0, 1.0, 0.0]), Purpose.DRAFT, 0)) for _ in range(50)} == {1}
    assert int(chance.draw_target(np.array([1.0, 0.0]), 3)) == 0
    ones, zeros = np.ones(3), np.zeros(3)
    assert (
        chance.first_failure(ones, Purpose.ACCEPT) == 3
        and chance.first_failure(zeros, Purpose.ACCEPT) == 0
    )
    assert (
        chance.last_success(ones, Purpose.ACCEPT) == 3
        and chance.last_success(zeros, Purpose.ACCEPT) == 0
    )
    assert chance.last_success(np.array([1.0, 0.0, 1.0, 0.0]), Purpose.ACCEPT) == 3


def test_function_laws_follow_the_path() -> None:
    laws = FunctionLaws(lambda prefix: np.eye(4)[len(prefix)], (0,), Draft((1, 2), (ROOT, 0)))
    assert laws.rows((ROOT, 0, 1)).argmax(axis=1).tolist() == [1, 2, 3]
    assert int(laws.draw(1, GeneratorChance(np.random.default_rng(0)))) == 3
