"""`--tree`, tree rules and the lossy rule on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., dict[str, Any]]
COMMON = (
    "generate",
    "the cat sat on the mat and the cat",
    "--raw",
    "--max-tokens",
    12,
    "--seed",
    1,
    "--temperature",
    1,
)


@pytest.mark.parametrize("rule", ["match", "rrs", "traversal", "k_seq", "greedy_k", "gumbel"])
def test_a_tree_is_drafted_and_verified(
    document: Run, target: Path, draft: Path, rule: str
) -> None:
    got = document(
        *COMMON,
        "--target",
        target,
        "--draft",
        draft,
        "--tree",
        "2,2,1",
        "--rule",
        rule,
        "--lossless",
    )
    assert got["stats"]["rule"] == rule
    assert got["stats"]["lossless"] is True
    assert got["stats"]["num_draft_tokens"] > got["stats"]["num_drafts"] * 3


@pytest.mark.parametrize("rule", ["k_seq", "greedy_k"])
def test_rules_for_siblings_verify_chains_too(
    document: Run, target: Path, draft: Path, rule: str
) -> None:
    got = document(*COMMON, "--target", target, "--draft", draft, "--rule", rule, "--lossless")
    assert got["stats"]["rule"] == rule and got["stats"]["num_draft_tokens"] > 0


def test_the_lossy_rule_says_so_and_lossless_refuses_it(
    document: Run, refused: Callable[..., str], target: Path
) -> None:
    got = document(*COMMON, "--target", target, "--rule", "typical")
    assert got["stats"]["rule"] == "typical (lossy)"
    assert got["stats"]["lossless"] is False
    asked = (
        ("--rule", "typical"),
        ("--speculative-config", '{"method": "ngram", "rule": "typical"}'),
    )
    for flags in asked:  # told before a model is looked for
        sentence = refused(*COMMON, "--target", "/nowhere/at/all", *flags, "--lossless")
        assert "typical (lossy)" in sentence and "--lossless" in sentence


@pytest.mark.parametrize(
    "flags, words",
    [
        (("--tree", "2,x"), "children per level"),
        (("--tree", "2,1", "-k", 5), "the tree has 2 levels"),
        (("--method", "none", "--tree", "2,1"), "--tree does nothing"),
        (("--speculative-config", '{"method": "ngram"}', "--tree", "2,1"), "--tree"),
    ],
)
def test_wrong_trees_are_refused(
    refused: Callable[..., str], target: Path, flags: tuple[Any, ...], words: str
) -> None:
    assert words in refused(*COMMON, "--target", target, *flags)
