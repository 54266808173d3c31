"""Whole decoders on models whose laws are known: what comes out follows the target, whatever the
drafter does.

Each check names the public report whose fault it would have caught, and the wrong law that fault
produces.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.laws import overlap
from draftproof.core.rules import LOSSLESS
from sampling import assert_law, assert_same_law, draw_many, exact_law
from tiny import table_model

VOCAB = 16


def table(**rows: dict[int, float]) -> np.ndarray:
    """A table of laws [16, 16]: the given rows, uniform elsewhere."""
    laws = np.full((VOCAB, VOCAB), 1 / VOCAB)
    for name, law in rows.items():
        laws[int(name[1:])] = [law.get(token, 0.0) for token in range(VOCAB)]
    return laws


def module(laws: np.ndarray, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """The same laws as a real one-layer Llama."""
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(laws), -80.0)
    return table_model(torch.tensor(logits, dtype=torch.float32), dtype)


def decoder(
    target: np.ndarray, draft: np.ndarray | None, real: bool = True, **config
) -> SpeculativeDecoder:
    wrap = module if real else TableModel
    return SpeculativeDecoder(
        None if draft is None else wrap(draft), wrap(target), speculative_config=config
    )


P, Q = table(s0={0: 0.5, 1: 0.3, 2: 0.2}), table(s0={0: 0.1, 1: 0.8, 2: 0.1})
LAW, SOFT_FAULT = {(0,): 0.5, (1,): 0.3, (2,): 0.2}, {(0,): 0.5, (1,): 0.375, (2,): 0.125}


@pytest.mark.parametrize("method", ["probabilistic", "greedy"])
@pytest.mark.parametrize("rule", ["token", "match", "block"])
def test_sampled_and_greedy_drafters_leave_the_law_alone(method, rule):
    """transformers#32867: a greedy draft scored with its soft law gives .5/.375/.125. Two tokens,
    so that one is drafted."""
    made = decoder(P, Q, num_speculative_tokens=2, draft_sample_method=method, rule=rule)
    assert_same_law(exact_law(made, [0], 1, max_tokens=2), LAW)


def test_a_sampled_run_has_the_enumerated_law():
    """The same through keyed chance, drawn rather than enumerated."""
    samples = draw_many(
        decoder(P, Q, real=False, num_speculative_tokens=2), [0], 2000, max_tokens=2
    )
    assert_law([s[:1] for s in samples], LAW, SOFT_FAULT)


def test_acceptance_is_the_overlap_and_not_certainty():
    """transformers#28508: everything was accepted. Overlap .2; 600 first drafts, 6 standard errors
    are .098."""
    target, draft = table(s0={0: 0.9, 1: 0.1}), table(s0={0: 0.1, 1: 0.9})
    made = decoder(target, draft, real=False, num_speculative_tokens=3)
    result = made.generate([0], SamplingParams(n=600, seed=1, max_tokens=3))
    first = [output.rounds[0].num_accepted_tokens > 0 for output in result.outputs]
    assert abs(np.mean(first) - 0.2) < 0.098
    assert_law(
        [o.token_ids[:1] for o in result.outputs], {(0,): 0.9, (1,): 0.1}, {(0,): 0.1, (1,): 0.9}
    )


@pytest.mark.parametrize(
    "temperature, draft_scale", list(product([0.3, 1.0, 1.7], [1.0, 0.0, 2.0]))
)
def test_a_drafter_at_another_temperature_changes_acceptance_only(temperature, draft_scale):
    """dflash#74. The drafter's own law is sharpened, flattened or greedy; the ratio uses whatever
    it drew from."""
    draft = Q if draft_scale != 2.0 else (Q**0.5) / (Q**0.5).sum(axis=1, keepdims=True)
    method = "greedy" if draft_scale == 0.0 else "probabilistic"
    made = decoder(P, draft, num_speculative_tokens=2, draft_sample_method=method)
    warmed = P[0] ** (1 / temperature)
    law = {(t,): mass for t, mass in enumerate(warmed / warmed.sum()) if mass > 0}
    assert_same_law(exact_law(made, [0], 1, max_tokens=2, temperature=temperature), law)


def test_a_bf16_drafter_is_scored_with_the_law_it_was_drawn_from():
    """DeepSpec#31: logits 100.0 to 100.7 collapse in bf16; scoring them in fp32 gives .106 to .155
    instead of 1/8."""
    draft = table_model(
        torch.tensor([[100.0 + 0.1 * t if t < 8 else 0.0 for t in range(VOCAB)]] * VOCAB),
        torch.bfloat16,
    )
    target = module(table(s0={t: 1 / 8 for t in range(8)}))
    made = SpeculativeDecoder(draft, target, speculative_config={"num_speculative_tokens": 2})
    assert_same_law(exact_law(made, [0], 1, max_tokens=2), {(t,): 1 / 8 for t in range(8)})


def test_a_looked_up_draft_does_not_touch_the_rows_it_is_judged_by():
    """vllm-ascend#2881: the drafted token was zeroed in the shared row, for this position and the
    next."""
    target = table(
        s1={2: 0.3, 3: 0.5, 4: 0.2}, s2={1: 0.6, 3: 0.4}, s3={1: 0.5, 2: 0.5}, s4={1: 1.0}
    )
    made = decoder(target, None, method="ngram", num_speculative_tokens=3)
    law = {
        (a, b): target[1, a] * target[a, b]
        for a, b in product(range(VOCAB), repeat=2)
        if target[1, a] * target[a, b] > 0
    }
    assert_same_law(exact_law(made, [1, 2, 1], 2, max_tokens=3), law)


@pytest.mark.parametrize(
    "rule", [name for name, rule in LOSSLESS.items() if "fixed" in rule.selections]
)
def test_a_rejected_guess_leaves_the_targets_law_as_it_was(rule):
    """The same under every rule: a round's overlaps are read off the rows after the verdict, and
    are what the target gave."""
    target = table(
        s1={2: 0.3, 3: 0.5, 4: 0.2}, s2={1: 0.6, 3: 0.4}, s3={1: 0.5, 2: 0.5}, s4={1: 1.0}
    )
    made = decoder(target, None, method="ngram", num_speculative_tokens=3, real=False, rule=rule)
    result = made.generate([1, 2, 1], SamplingParams(max_tokens=60, seed=1))
    context, rejected = [1, 2, 1], 0
    for record in result.rounds:
        for place, overlap_ in enumerate(record.overlaps):
            before = [*context, *record.draft_tokens[:place]]
            assert overlap_ == pytest.approx(
                target[before[-1], record.draft_tokens[place]], abs=1e-6
            )
        rejected += record.num_accepted_tokens < record.reached
        context.extend(record.tokens)
    assert rejected > 5


@pytest.mark.parametrize("config", [{"method": "ngram"}, {"method": "draft_model", "model": "x"}])
def test_sampling_is_not_replaced_by_arg_max(config):
    """sglang#31214: one backend verified with arg max at every temperature."""
    target = table(**{f"s{t}": {0: 0.6, 1: 0.4} for t in range(VOCAB)})
    config = dict(config)
    config.pop("model", None)
    made = decoder(
        target,
        target if config["method"] == "draft_model" else None,
        num_speculative_tokens=3,
        **config,
    )
    samples = draw_many(made, [0, 1, 0], 100, max_tokens=4)
    assert_law([t for s in samples for t in s], {0: 0.6, 1: 0.4}, {0: 1.0})


LIKELIEST = [name for name, rule in LOSSLESS.items() if rule.trees and "fixed" in rule.selections]


@pytest.mark.parametrize("rule", LIKELIEST)
@pytest.mark.parametrize("tree, num_tokens", [("2", 1), ("3", 1), ("2,2", 2)])
def test_a_tree_of_likeliest_tokens_leaves_the_law_alone(rule, tree, num_tokens):
    """EAGLE#183, fms-extras#12: children that were picked, not drawn. 2 is in no tree of width 2
    and must come all the same."""
    target = table(s0={0: 0.5, 1: 0.3, 2: 0.2}, s1={0: 0.2, 1: 0.2, 2: 0.6}, s2={0: 0.1, 1: 0.9})
    draft = table(
        s0={0: 0.5, 1: 0.4, 2: 0.1}, s1={0: 0.6, 1: 0.3, 2: 0.1}, s2={0: 0.5, 1: 0.3, 2: 0.2}
    )
    made = decoder(target, draft, real=False, tree=tree, draft_sample_method="greedy", rule=rule)
    law = {(a,): target[0, a] for a in range(3)}
    if num_tokens == 2:
        law = {(a, b): target[0, a] * target[a, b] for a in range(3) for b in range(3)}
    assert_same_law(
        exact_law(made, [0], num_tokens, max_tokens=num_tokens + 1), law, tolerance=1e-12
    )


def test_equal_models_accept_everything_under_the_token_rule():
    """mlx-lm#1709: sample-and-match accepts only sum p^2 = .25 of drafts from an equal model with
    four likely tokens."""
    target = table(**{f"s{t}": {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25} for t in range(VOCAB)})
    params = SamplingParams(max_tokens=400, seed=2)
    token = (
        decoder(target, target, real=False, num_speculative_tokens=4).generate([0], params).stats
    )
    match = (
        decoder(target, target, real=False, num_speculative_tokens=4, rule="match")
        .generate([0], params)
        .stats
    )
    assert token.draft_acceptance_rate == 1.0
    assert token.alpha == pytest.approx(1.0)
    assert match.acceptance_per_position["conditional"][0] < 0.4


def test_alpha_is_the_mean_overlap_of_reached_positions():
    made = decoder(P, Q, real=False, num_speculative_tokens=1)
    rounds = made.generate([0], SamplingParams(max_tokens=60, seed=3)).rounds
    context = [0]
    for record in rounds:
        if record.draft_tokens:
            assert record.overlaps[0] == pytest.approx(
                float(overlap(P[context[-1]], Q[context[-1]]))
            )
        context.extend(record.tokens)
