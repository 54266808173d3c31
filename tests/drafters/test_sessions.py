"""What chats and batches ask of every drafter: a kept session is as good as a new one, and
neighbours change nothing.

Every method of the registry takes part: one that needs no folder of weights is made from its entry,
so a new one is asked too."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.tree import TreeShape
from draftproof.drafters.auto import Auto
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.medusa import Medusa
from draftproof.drafters.ngram import NGram
from draftproof.drafters.protocol import Renewable
from draftproof.drafters.registry import METHODS
from draftproof.drafters.retrieval import Retrieval
from draftproof.drafters.stores.suffix_array import SuffixArray, build_suffix_array
from draftproof.drafters.suffix import Suffix
from random_heads import random_head, random_state
from tiny import llama

LIKELY = TableModel(
    [[0.6 if j == (i + 1) % 8 else 0.4 / 7 for j in range(8)] for i in range(8)], name="draft"
)
TARGET = TableModel(
    [[0.8 if j == (i + 1) % 8 else 0.2 / 7 for j in range(8)] for i in range(8)], name="target"
)
SHOWN = TableModel(TARGET.law, vocab_size=8, name="target with hidden states", hidden=random_state)
TREE = TreeShape.from_levels((2, 2, 1, 1))
OWN = {
    "draft_model, tree": lambda: DraftModel(LIKELY, tree=TREE, selection="without_replacement"),
    "draft_model, greedy": lambda: DraftModel(LIKELY, "greedy"),
    "ngram, trie": lambda: NGram(tree=TREE),
    "suffix, tree": lambda: Suffix(max_spec_factor=3.0, tree=True),
    "retrieval": lambda: Retrieval(SuffixArray(build_suffix_array([np.arange(40) % 8])), 14),
}
HEADS = {
    "medusa": lambda: Medusa(random_head("medusa")),
    "medusa, tree": lambda: Medusa(random_head("medusa"), tree=TREE),
    "eagle": lambda: Eagle(random_head("eagle")),
    "eagle, greedy": lambda: Eagle(random_head("eagle"), "greedy"),
    "eagle, dynamic tree": lambda: Eagle(random_head("eagle"), num_nodes=8, top_k=3),
    "eagle3": lambda: Eagle(random_head("eagle3"), name="eagle3"),
    "eagle3, dynamic tree": lambda: Eagle(
        random_head("eagle3"), num_nodes=5, top_k=2, name="eagle3"
    ),
    "auto of lookup and a head": lambda: Auto(
        {"ngram": NGram(), "eagle": Eagle(random_head("eagle"), "greedy")}
    ),
}
"""Drafters that read the target's hidden states."""
COSTS = {
    "verify": {"1": 1, "3": 1.1, "5": 1.5, "9": 2.4},
    "draft": 0.15,
    "read": 0.01,
    "prompt": 0.05,
}
ADAPTIVE = {
    "draft_model, survival": (lambda: DraftModel(LIKELY), {"adaptive": "survival"}),
    "draft_model, lab": (lambda: DraftModel(LIKELY), {"adaptive": "lab"}),
    "draft_model, heuristic": (lambda: DraftModel(LIKELY), {"adaptive": "heuristic"}),
    "draft_model, auto-off": (lambda: DraftModel(LIKELY), {"adaptive": "fixed", "auto_off": True}),
    "draft_model, tree, survival": (
        lambda: DraftModel(LIKELY, tree=TREE, selection="without_replacement"),
        {"adaptive": "survival", "num_speculative_tokens": 4},
    ),
    "ngram, survival": (NGram, {"adaptive": "survival"}),
    "eagle, survival": (lambda: Eagle(random_head("eagle")), {"adaptive": "survival"}),
    "auto, survival": (
        lambda: Auto({"suffix": Suffix(), "draft_model": DraftModel(LIKELY, "greedy")}),
        {"adaptive": "survival"},
    ),
}
"""Lengths that adapt, by a given table of costs, so that they rest on counts alone."""
OF_A_MODULE = {"early_exit": {"early_exit_layers": 1}, "layer_skip": {"skip_layers": [1]}}
"""Methods that draft with the target's own layers, and so need a module."""
REGISTERED = [
    name
    for name, method in METHODS.items()
    if name != "none" and method.model in (None, "draft") and not method.requires
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
    if name in OWN | HEADS:
        target = SHOWN if name in HEADS else TARGET
        return SpeculativeDecoder(
            (OWN | HEADS)[name](), target, speculative_config={"num_speculative_tokens": 4}
        )
    if name in ADAPTIVE:
        drafter, config = ADAPTIVE[name]
        return SpeculativeDecoder(
            drafter(),
            SHOWN,
            speculative_config={"costs": COSTS, "num_speculative_tokens": 6} | config,
        )
    config: dict[str, object] = {"method": name, "num_speculative_tokens": 4}
    if METHODS[name].model == "draft":
        return SpeculativeDecoder(LIKELY, TARGET, speculative_config=config | {"model": "draft"})
    if name in OF_A_MODULE:
        return SpeculativeDecoder(
            None, llama(torch.float64), speculative_config=config | OF_A_MODULE[name]
        )
    return SpeculativeDecoder(None, TARGET, speculative_config=config)


@pytest.fixture(params=[*REGISTERED, *OWN, *HEADS, *ADAPTIVE])
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
    params = [
        SamplingParams(temperature=i % 2, seed=i, max_tokens=4 + 2 * i) for i in range(len(TURNS))
    ]
    solo = [made.generate(turn, one) for turn, one in zip(TURNS, params, strict=True)]
    for size in (2, 6):
        assert [drafts(r) for r in made.generate(TURNS, params, batch_size=size)] == [
            drafts(r) for r in solo
        ]


def test_a_length_of_zero_in_between_leaves_no_trace(made):
    params = SamplingParams(temperature=0, max_tokens=6)
    off = SamplingParams(temperature=0, max_tokens=6, num_speculative_tokens=0)
    with made.session() as session:
        for turn, one in zip(TURNS, (params, off, params, off, off, params), strict=True):
            assert drafts(session.generate(turn, one)) == drafts(made.generate(turn, one))


LONG = [[i % 8, (i + 1) % 8, (i + 2) % 8, i % 8, (i + 1) % 8] for i in range(5)]


@pytest.mark.parametrize("name", ADAPTIVE)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_lengths_adapt_to_each_rows_own_rounds(name, temperature):
    """Rows long enough for lengths to move, one beside neighbours of another length: the same
    decisions as alone."""
    decoder = make(name)
    params = [
        SamplingParams(temperature=temperature, seed=i, max_tokens=25 + 15 * (i % 3))
        for i in range(len(LONG))
    ]
    solo = [decoder.generate(prompt, one) for prompt, one in zip(LONG, params, strict=True)]
    batch = decoder.generate(LONG, params, batch_size=3)
    assert [drafts(result) for result in batch] == [drafts(result) for result in solo]
    said = [[record.length_reason for record in result.rounds] for result in batch]
    assert said == [[record.length_reason for record in result.rounds] for result in solo]
    lengths = {len(record.draft_tokens) for result in solo for record in result.rounds[:-3]}
    assert len(lengths) > 1 or name in ("draft_model, auto-off", "draft_model, tree, survival"), (
        "the lengths do move"
    )


@pytest.mark.parametrize("name", HEADS)
def test_passes_of_heads_are_joined(name):
    """Rows of a batch ask their head together: fewer passes than rows ask for, and never two of one
    session in one pass."""
    decoder = make(name)
    drafter = (
        decoder.drafter.members["eagle"] if isinstance(decoder.drafter, Auto) else decoder.drafter
    )
    sizes = []
    extend_many = drafter.passes.extend_many

    def counted(steps):
        assert len({id(step.session) for step in steps}) == len(steps)
        sizes.append(len(steps))
        return extend_many(steps)

    decoder.measure_costs()  # whose passes are not those of texts
    drafter.passes.extend_many = counted
    params = SamplingParams(temperature=0, max_tokens=12)
    decoder.generate(LONG, params, batch_size=5)
    joined, sizes[:] = list(sizes), []
    for prompt in LONG:
        decoder.generate(prompt, params)
    assert set(sizes) <= {1}
    assert sum(joined) == len(sizes)
    assert len(joined) < len(sizes) / 2


@pytest.mark.parametrize("name", [name for name in HEADS if name != "auto of lookup and a head"])
def test_a_chat_with_a_head_reads_only_what_is_new(name):
    decoder = make(name)
    params = SamplingParams(temperature=0, max_tokens=4)
    text = [0, 1, 2, 3, 0, 1]
    known = 0
    with decoder.session() as session:
        for turn in range(5):
            result = session.generate(text, params)
            assert drafts(result) == drafts(decoder.generate(text, params))
            assert result.num_cached_tokens == known
            text = [*text, *result.token_ids]
            known = len(text) - 1  # all but the last token, which nothing has read yet
            text += [5, turn]


@pytest.mark.parametrize(
    "name", ["ngram", "draft_model", "ngram, trie", "draft_model, tree", "auto, survival", *HEADS]
)
def test_drafters_that_remember_a_prompt_can_be_kept(name):
    decoder = make(name)
    with decoder.session() as session:
        session.generate(TURNS[0], SamplingParams(temperature=0, max_tokens=2))
        assert isinstance(session._kept._drafting, Renewable)
        kept = session._kept._drafting
        session.generate(TURNS[1], SamplingParams(temperature=0, max_tokens=2))
        assert session._kept._drafting is kept
