"""The TV test and the mean round length, for trees."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

TARGET = np.array([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.1, 0.7, 0.2]])
DRAFTER = np.array([[0.2, 0.5, 0.3], [0.5, 0.3, 0.2], [0.6, 0.2, 0.2]])


def target(prefix: tuple[int, ...]) -> np.ndarray:
    return TARGET[prefix[-1]]


def drafter(prefix: tuple[int, ...]) -> np.ndarray:
    return DRAFTER[prefix[-1]]


def test_the_tree_holds_the_two_likeliest_tokens_of_every_node(lab: SimpleNamespace) -> None:
    tree = lab.draft_tree(drafter, (0,), 2)
    assert tree == {(): [1, 2], (1,): [0, 1], (2,): [0, 1]}


def test_output_distribution_is_exactly_the_target(
    lab: SimpleNamespace, diagnosis: ModuleType
) -> None:
    """As in the lab with a third of the runs: TV < 0.026; fewer than 1 exact sampler in 100,000
    fails."""
    diagnosis.check_repeats(lambda rng: lab.tree_step(target, drafter, (0,), 2, rng))
    rng, counts, runs = np.random.default_rng(0), np.zeros((3, 3)), 10_000
    for _ in range(runs):
        out: list[int] = []
        while len(out) < 2:
            out += lab.tree_step(target, drafter, (0, *out), 2, rng)
        counts[out[0], out[1]] += 1
    distance = np.abs(counts / runs - TARGET[0][:, None] * TARGET).sum() / 2
    assert distance < 0.026, (
        f"TV to the target is {distance:.3f}; a rejected candidate must leave the law "
        "before the next try"
    )


def test_tokens_per_round_are_what_the_tree_covers(lab: SimpleNamespace) -> None:
    """1 + the sum, over all nodes below the root, of the target's probability to get there: 1.57.

    Round lengths 1 to 3 have a standard deviation below 0.8: over 8,000 rounds 3% is more than five
    standard errors."""
    covered = 1 + sum(
        TARGET[0, a] * (1 + sum(TARGET[a, b] for b in second))
        for a, second in ((1, (0, 1)), (2, (0, 1)))
    )
    rng = np.random.default_rng(1)
    lengths = [len(lab.tree_step(target, drafter, (0,), 2, rng)) for _ in range(8_000)]
    assert set(lengths) == {1, 2, 3}, "a tree of depth 2 emits 1 to 3 tokens"
    assert np.mean(lengths) == pytest.approx(covered, rel=0.03), (
        "accept every candidate as often as the target offers it"
    )
