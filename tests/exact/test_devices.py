"""The proof on an accelerator: every array lies on a pretended one, so that rules take the branches
they
take there.

No rule is patched. Chance gives 0-d tensors, as it does on a device, and `match` draws all its rows
at once, more than it comes to use: keys by position then come again, and what is known of them is
followed through."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from draftproof.audit.exact import TOLERANCE, Case, compare, harness
from draftproof.audit.table import CHAIN_RULES, PARAMETERS, TREE_RULES, tree_case
from draftproof.audit.tensors import TensorModel
from draftproof.core.chance import KeyedChance, Purpose
from draftproof.core.enumerate import EnumeratingChance, round_key
from draftproof.models.protocol import Output
from pretended_devices import FIRST, pretended


class DeviceModel(TensorModel):
    """A table model whose logits lie on a pretended device."""

    def extend_many(self, steps):
        return [Output(output.logits.to(FIRST)) for output in super().extend_many(steps)]


def holds(case):
    with pretended():
        proof = compare(case, replace(harness(case, wrap=DeviceModel), share=True))
    assert proof.tv <= TOLERANCE, proof.tv
    assert proof.length_holds, proof.length_error


@pytest.mark.parametrize("rule", CHAIN_RULES)
@pytest.mark.parametrize(
    "draft, pair, params",
    [
        ("sampled", "zeros", "plain"),
        ("sampled", "markov", "all at once"),
        ("greedy", "markov", "plain"),
        ("narrow", "markov", "greedy"),
    ],
)
def test_a_round_of_a_chain_is_exact(rule, draft, pair, params):
    holds(Case(rule, draft, pair, params, PARAMETERS[params], 2, horizon=3, rounds=1))


DRAWS_ALL_ROWS = ("match", "gumbel")
"""Rules that branch in every row of the draft there."""


@pytest.mark.parametrize("kind", TREE_RULES, ids=lambda kind: " ".join(kind))
def test_a_round_of_a_tree_is_exact(kind):
    rule, selection = kind
    shape = "[2]" if rule in DRAWS_ALL_ROWS or selection == "iid" else "[2,1]"
    holds(tree_case(kind, "plain", shape, "overrated", by="model "))


@pytest.mark.parametrize(
    "ask",
    [
        lambda chance, array: chance.draw(array, Purpose.ACCEPT, 0),
        lambda chance, array: chance.draw_draft(array, 0, 0),
        lambda chance, array: chance.draw_target(array, 0),
        lambda chance, array: chance.first_failure(array, Purpose.ACCEPT),
        lambda chance, array: chance.last_success(array, Purpose.ACCEPT),
    ],
)
def test_the_enumerator_gives_what_keyed_chance_gives(ask):
    """A tensor on the device where keyed chance gives one, an int where it gives an int."""
    values = torch.tensor([0.2, 0.7, 0.1], dtype=torch.float64)
    with pretended():
        for array in (values, values.to(FIRST)):
            walked = ask(EnumeratingChance(3, (), {}, False, round_key), array)
            drawn = ask(KeyedChance((1, 2), 3), array)
            assert isinstance(walked, int) == isinstance(drawn, int) == (array.device.type == "cpu")
            assert isinstance(walked, int) or walked.device == drawn.device == FIRST
