"""The same proof through torch float64: the arrays production uses, the rules unchanged; and the way they take where looking
at a number waits for a device, with tensors all through."""

from __future__ import annotations

import pytest
import torch

from draftproof.audit.exact import TOLERANCE, Case, prove
from draftproof.audit.table import CHAIN_RULES, PARAMETERS, TREE_RULES, tree_case
from draftproof.audit.tensors import as_tensors
from draftproof.core import laws, siblings
from draftproof.core.params import SamplingParams
from draftproof.core.rules import token
from draftproof.drafters import builder

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


@pytest.fixture(params=["memory", "accelerator"])
def place(request, monkeypatch):
    """Where arrays are said to lie: on an accelerator no rule may turn to NumPy or look at one position after another."""
    if request.param == "accelerator":
        for module, name in [(token, "in_memory"), (builder, "in_memory")]:
            monkeypatch.setattr(module, name, lambda array: False)
        for module in (laws, siblings, builder):
            monkeypatch.setattr(module, "as_numpy", lambda array: array)
        monkeypatch.setattr(token, "_one_by_one", None)
    return request.param


@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize("draft, pair, params", SLICE)
def test_torch_rounds_are_exact(rule, draft, pair, params, place):
    proof = prove(Case(rule, draft, pair, params, PARAMETERS[params], 2), wrap=as_tensors)
    assert proof.tv <= TOLERANCE
    assert proof.length_error <= TOLERANCE


def halve_after_zero(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """A processor in Hugging Face's form that reads the history: after token 0, token 1 becomes less likely."""
    scores = scores.clone()
    scores[input_ids[:, -1] == 0, 1] -= 0.7
    return scores


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_a_processor_of_the_callers_holds_at_every_drafted_position(rule):
    sampling = SamplingParams(max_tokens=8, ignore_eos=True, seed=0, logits_processors=[halve_after_zero])
    proof = prove(Case(rule, "sampled", "full_history", "processor", sampling, 3), wrap=as_tensors)
    assert proof.tv <= TOLERANCE
    assert proof.length_error <= TOLERANCE


@pytest.mark.parametrize("kind", TREE_RULES, ids=lambda kind: " ".join(kind))
def test_torch_rounds_of_trees_are_exact(kind, place):
    proof = prove(tree_case(kind, "top_p", "[2,1]", "overrated", by="model "), wrap=as_tensors)
    assert proof.tv <= TOLERANCE
    assert proof.length_error <= TOLERANCE
