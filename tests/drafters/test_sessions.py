"""What chats and batches ask of every drafter: a kept session is as good as a new one, and neighbours change nothing.

Every method of the registry takes part: one that needs no folder of weights is made from its entry, so a new one is asked too.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.tree import TreeShape
from draftproof.decode.methods import METHODS
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.ngram import NGram
from draftproof.drafters.protocol import Renewable
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array
from draftproof.drafters.suffix import Suffix
from tiny import llama

LIKELY = TableModel([[0.6 if j == (i + 1) % 8 else 0.4 / 7 for j in range(8)] for i in range(8)], name="draft")
TARGET = TableModel([[0.8 if j == (i + 1) % 8 else 0.2 / 7 for j in range(8)] for i in range(8)], name="target")
TREE = TreeShape.from_levels((2, 2, 1, 1))
OWN = {
    "draft_model, tree": lambda: DraftModel(LIKELY, tree=TREE, selection="without_replacement"),
    "draft_model, greedy": lambda: DraftModel(LIKELY, "greedy"),
    "ngram, trie": lambda: NGram(tree=TREE),
    "suffix, tree": lambda: Suffix(max_spec_factor=3.0, tree=True),
    "retrieval": lambda: Retrieval(SuffixArray(build_suffix_array([np.arange(40) % 8])), 14),
}
OF_A_MODULE = {"early_exit": {"early_exit_layers": 1}, "layer_skip": {"skip_layers": [1]}}
"""Methods that draft with the target's own layers, and so need a module."""
REGISTERED = [
    name for name, method in METHODS.items() if name != "none" and method.model in (None, "draft") and not method.requires
]
TURNS = [
    [0, 1, 2, 3, 0, 1],
    [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 1, 2],  # goes on
    [0, 1, 2, 3, 0, 1, 5, 0, 1, 5, 0, 1],  # parts in the middle
    [0, 1],  # shrinks
    [4, 4, 4, 4],  # is another text
    [0, 1, 2, 3, 0, 1],
]


def make(name: str) -> SpeculativeDecoder:
    if name in OWN:
        return SpeculativeDecoder(OWN[name](), TARGET, speculative_config={"num_speculative_tokens": 4})
    config: dict[str, object] = {"method": name, "num_speculative_tokens": 4}
    if METHODS[name].model == "draft":
        return SpeculativeDecoder(LIKELY, TARGET, speculative_config=config | {"model": "draft"})
    if name in OF_A_MODULE:
        return SpeculativeDecoder(None, llama(torch.float64), speculative_config=config | OF_A_MODULE[name])
    return SpeculativeDecoder(None, TARGET, speculative_config=config)


@pytest.fixture(params=[*REGISTERED, *OWN])
def made(request):
    return make(request.param)


def drafts(result):
    return [(record.start, record.draft_tokens, record.tokens) for record in result.rounds]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_turns_over_a_kept_session_are_cold_runs(made, temperature):
    params = SamplingParams(temperature=temperature, seed=3, max_tokens=9)
    with made.session() as session:
        for turn in TURNS:
            assert drafts(session.generate(turn, params)) == drafts(made.generate(turn, params))


def test_rows_of_a_batch_are_solo_runs(made):
    params = [SamplingParams(temperature=i % 2, seed=i, max_tokens=4 + 2 * i) for i in range(len(TURNS))]
    solo = [made.generate(turn, one) for turn, one in zip(TURNS, params, strict=True)]
    for size in (2, 6):
        assert [drafts(r) for r in made.generate(TURNS, params, batch_size=size)] == [drafts(r) for r in solo]


def test_a_length_of_zero_in_between_leaves_no_trace(made):
    params = SamplingParams(temperature=0, max_tokens=6)
    off = SamplingParams(temperature=0, max_tokens=6, num_speculative_tokens=0)
    with made.session() as session:
        for turn, one in zip(TURNS, (params, off, params, off, off, params), strict=True):
            assert drafts(session.generate(turn, one)) == drafts(made.generate(turn, one))


@pytest.mark.parametrize("name", ["ngram", "draft_model", "ngram, trie", "draft_model, tree"])
def test_drafters_that_remember_a_prompt_can_be_kept(name):
    decoder = make(name)
    with decoder.session() as session:
        session.generate(TURNS[0], SamplingParams(temperature=0, max_tokens=2))
        assert isinstance(session._drafting, Renewable)
        kept = session._drafting
        session.generate(TURNS[1], SamplingParams(temperature=0, max_tokens=2))
        assert session._drafting is kept
