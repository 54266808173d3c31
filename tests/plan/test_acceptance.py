"""The chance that a text's token was an accepted draft, rule by rule: foretold from texts, and what
the decoder then does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.tree import TreeShape
from draftproof.costs.pass_timer import PassTimes
from draftproof.costs.timings import Timings
from draftproof.decode.config import SpeculativeConfig
from draftproof.errors import UsageError
from draftproof.plan.acceptance import Judge
from draftproof.plan.candidate import Candidate
from draftproof.plan.forcing import write_texts
from draftproof.plan.rounds import Trace, expect

RNG = np.random.default_rng(17)
TARGET = RNG.dirichlet(np.full(6, 0.7), size=6)
DRAFT = 0.6 * TARGET + 0.4 * RNG.dirichlet(np.full(6, 0.7), size=6)
COUNT, TOKENS = 250, 20


def foretold_and_decoded(config: dict[str, Any], tree: str | None = None) -> tuple[float, float]:
    """Tokens a round over COUNT texts of TOKENS tokens: from texts of the target, and by decoding
    other ones."""
    return _foretold_and_decoded(tuple(config.items()), tree)


def rate(traces: Sequence[Trace]) -> float:
    expected = [expect(trace, trace.longest) for trace in traces]
    return sum(e.num_tokens for e in expected) / sum(e.num_rounds for e in expected)


@cache
def _foretold_and_decoded(
    items: tuple[tuple[str, Any], ...], tree: str | None
) -> tuple[float, float]:
    target, draft, config = TableModel(TARGET), TableModel(DRAFT), dict(items)
    whole = {"method": "draft_model", "model": "D"} | config | ({"tree": tree} if tree else {})
    candidate = Candidate(SpeculativeConfig.from_dict(whole), draft)
    params = SamplingParams(max_tokens=TOKENS, seed=11)
    texts = write_texts(target, [(i % 6,) for i in range(COUNT)], params)
    readings = candidate.read(target, texts, params, 3, lambda *_: None)
    traces = readings.trees(TreeShape.parse(tree)) if tree else readings.chains(3)
    given = whole if tree else whole | {"num_speculative_tokens": 3}
    decoder = SpeculativeDecoder(draft, target, speculative_config=given)
    results = [
        decoder.generate([i % 6], SamplingParams(max_tokens=TOKENS, seed=5000 + i))
        for i in range(COUNT)
    ]
    return rate(traces), sum(len(r.token_ids) for r in results) / sum(
        len(r.rounds) for r in results
    )


@pytest.mark.parametrize(
    "config",
    [
        {"rule": "token"},
        {"rule": "block"},
        {"rule": "match"},
        {"rule": "gumbel"},
        {"rule": "traversal"},
        {"rule": "rrs"},
        {"draft_sample_method": "greedy"},
    ],
    ids=str,
)
def test_chains_are_foretold_under_every_rule(config: dict[str, Any]) -> None:
    """Both means are known to about 0.8%; a gap of 4% has a false alarm below 1e-3."""
    foretold, decoded = foretold_and_decoded(config)
    assert foretold == pytest.approx(decoded, rel=0.04)


@pytest.mark.parametrize(
    "config",
    [
        {"rule": "rrs", "tree_selection": "without_replacement"},
        {"rule": "rrs", "tree_selection": "iid"},
        {"rule": "k_seq"},
        {"rule": "greedy_k"},
        {"rule": "match"},
        {"rule": "gumbel"},
    ],
    ids=str,
)
def test_sampled_trees_are_foretold_under_every_rule(config: dict[str, Any]) -> None:
    foretold, decoded = foretold_and_decoded(config, "2,2,1")
    assert foretold == pytest.approx(decoded, rel=0.04)


def test_the_best_tree_is_looked_for_by_the_chances_of_as_many_siblings() -> None:
    """Under `greedy_k` a lone sibling is a draw, and of two the first is the likeliest token: the
    place is not all."""
    target, draft = TableModel(TARGET), TableModel(DRAFT)
    config = SpeculativeConfig.from_dict(
        {"method": "draft_model", "model": "D", "rule": "greedy_k"}
    )
    candidate = Candidate(config, draft, ("best",))
    params = SamplingParams(max_tokens=TOKENS, seed=11)
    texts = write_texts(target, [(i % 6,) for i in range(30)], params)
    readings = candidate.read(target, texts, params, 3, lambda *_: None)
    found = readings.best_shape(
        Timings((PassTimes(10, {n: (1.0,) for n in range(1, 14)}, {1: (0.0,)}),))
    )
    assert found is not None and len(found) == 12 and not found.is_chain, (
        "nodes cost nothing here, and so there are many"
    )
    tokens = {
        shape: rate(readings.trees(shape))
        for shape in (found, TreeShape.parse("3,3"), TreeShape.parse("2,2,1"))
    }
    assert tokens[found] == max(tokens.values())
    alone = np.mean([t.accept[:, 0].mean() for t in readings.trees(TreeShape.parse("1,1"))])
    first = np.mean([t.accept[:, 0].mean() for t in readings.trees(TreeShape.parse("2,1"))])
    assert first > alone


def test_traversal_keeps_at_least_what_is_foretold_for_trees() -> None:
    foretold, decoded = foretold_and_decoded({"rule": "traversal"}, "2,2,1")
    assert foretold <= decoded * 1.03 and decoded <= foretold * 1.2


def test_greedy_trees_are_guesses() -> None:
    foretold, decoded = foretold_and_decoded({"draft_sample_method": "greedy"}, "2,2,1")
    assert foretold == pytest.approx(decoded, rel=0.04)


def test_block_keeps_more_than_token_and_match_less() -> None:
    speeds = {rule: foretold_and_decoded({"rule": rule})[0] for rule in ("block", "token", "match")}
    assert speeds["block"] > speeds["token"] > speeds["match"]


def test_the_coupled_coin_is_the_share_of_noises_on_which_both_agree() -> None:
    """200,000 noises: the share is known to 0.004, a gap of 0.02 has a false alarm below 1e-6."""
    p, q = TARGET[:1], DRAFT[:1]
    noise = np.random.default_rng(0).gumbel(size=(200_000, 6))
    ours, theirs = np.argmax(np.log(p) + noise, axis=1), np.argmax(np.log(q) + noise, axis=1)
    for token in range(6):
        with_token = ours == token
        if with_token.sum() > 5000:
            found = Judge("gumbel").laws(p, q, np.array([token]))[0, 0]
            assert found == pytest.approx((theirs[with_token] == token).mean(), abs=0.02)


def test_rules_that_plan_does_not_know_are_refused() -> None:
    for judge in (
        lambda: Judge("typical"),
        lambda: Judge("typical", fixed=True),
        lambda: Judge("block", width=3),
    ):
        with pytest.raises(UsageError, match="measure it with bench"):
            judge()
    with pytest.raises(UsageError, match="verifies no without_replacement siblings"):
        Judge("greedy_k", width=2)
    assert Judge("match", fixed=True, width=3).width == 3
