"""The same proof through torch float64 in a CPU's memory: the arrays production uses, the rules
unchanged. On a device they take other branches: see `test_devices.py`."""

from __future__ import annotations

import pytest
import torch

from draftproof.audit.exact import TOLERANCE, Case, prove
from draftproof.audit.table import CHAIN_RULES, PARAMETERS, TREE_RULES, tree_case
from draftproof.audit.tensors import TensorModel
from draftproof.core.params import SamplingParams

SLICE = [
    ("sampled", "full_history", "plain"),
    ("sampled", "zeros", "top_p"),
    ("greedy", "markov", "temperature 0.5"),
    ("narrow", "full_history", "repetition_penalty"),
    ("ngram", "markov", "frequency_penalty"),
    ("stops_before", "zeros", "min_tokens"),
    ("same", "markov", "all at once"),
    ("sampled", "markov", "greedy"),
]


@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize("draft, pair, params", SLICE)
def test_torch_rounds_are_exact(rule, draft, pair, params):
    proof = prove(Case(rule, draft, pair, params, PARAMETERS[params], 2), wrap=TensorModel)
    assert proof.tv <= TOLERANCE
    assert proof.length_error <= TOLERANCE


def halve_after_zero(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """A processor in Hugging Face's form that reads the history: after token 0, token 1 becomes
    less likely."""
    scores = scores.clone()
    scores[input_ids[:, -1] == 0, 1] -= 0.7
    return scores


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_a_processor_of_the_callers_holds_at_every_drafted_position(rule):
    sampling = SamplingParams(
        max_tokens=8, ignore_eos=True, seed=0, logits_processors=[halve_after_zero]
    )
    proof = prove(Case(rule, "sampled", "full_history", "processor", sampling, 3), wrap=TensorModel)
    assert proof.tv <= TOLERANCE
    assert proof.length_error <= TOLERANCE


@pytest.mark.parametrize("kind", TREE_RULES, ids=lambda kind: " ".join(kind))
def test_torch_rounds_of_trees_are_exact(kind):
    proof = prove(tree_case(kind, "top_p", "[2,1]", "overrated", by="model "), wrap=TensorModel)
    assert proof.tv <= TOLERANCE
    assert proof.length_error <= TOLERANCE
