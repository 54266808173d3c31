"""Trees through the whole decoder: the same text as plain decoding, right counts, fallbacks that
say so."""

from __future__ import annotations

import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.rules import RULES
from draftproof.core.tree import TreeShape
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.ngram import NGram
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from tiny import FAMILIES

PROMPT = [5, 9, 12, 5, 9, 3, 5, 9]
TREES = ("2,2,1", "-1,-1,-1,0,0,1,3")


def pair(family):
    """A target, and a draft that is the target with some noise: good enough to be accepted, bad
    enough to be rejected."""
    target, draft = FAMILIES[family](torch.float64), FAMILIES[family](torch.float64)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in draft.parameters():
            weight.add_(0.03 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return target, draft


def decoder(target, draft=None, **config):
    if draft is not None:
        config = {"model": "draft"} | config
    else:
        config = {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 2} | config
    return SpeculativeDecoder(draft, target, speculative_config=config)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("kind", ["model", "ngram"])
def test_greedy_text_is_plain_decodings(family, tree, kind):
    target, draft = pair(family)
    made = decoder(target, draft if kind == "model" else None, tree=tree)
    params = SamplingParams(temperature=0, max_tokens=20)
    result = made.generate(PROMPT, params)
    assert result.token_ids == made.plain.generate(PROMPT, params).token_ids
    assert result.stats.num_draft_tokens > 0
    if kind == "model":
        assert any(len(set(r.draft_parents)) < len(r.draft_parents) for r in result.rounds), (
            "no draft branched"
        )
        assert result.stats.num_accepted_tokens > 0


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("selection", ["iid", "without_replacement", "top_k_plus_one"])
@pytest.mark.parametrize("rule", ["match", "gumbel"])
def test_every_parameter_holds_on_every_node(family, selection, rule):
    """Under a rule that emits the target's own draws the text is plain decoding's for the seed,
    penalties that read the history included: each node is processed with its own path."""
    target, draft = pair(family)
    made = decoder(target, draft, tree="2,2,1", tree_selection=selection, rule=rule)
    params = SamplingParams(
        temperature=0.9,
        top_k=20,
        top_p=0.95,
        min_p=0.01,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.5,
        bad_words_ids=[[5, 9], [7]],
        logit_bias={3: 1.5},
        max_tokens=22,
        seed=11,
        n=3,
    )
    speculative, plain = made.generate(PROMPT, params), made.plain.generate(PROMPT, params)
    assert [o.token_ids for o in speculative.outputs] == [o.token_ids for o in plain.outputs]
    assert sum(o.stats.num_accepted_tokens for o in speculative.outputs) > 0


def test_a_later_sibling_is_kept_without_reading_it_again():
    """The second child is the right one at every level, so that every kept path leaves the first
    branch."""
    size = 8
    right = [[1.0 if j == (i + 1) % size else 0.0 for j in range(size)] for i in range(size)]
    second = [
        [0.6 if j == (i + 2) % size else 0.4 if j == (i + 1) % size else 0.0 for j in range(size)]
        for i in range(size)
    ]
    read = []

    class Counting(TableModel):
        def extend_many(self, steps):
            read.extend(len(step.tokens) for step in steps)
            assert all(
                tuple(step.session.tokens) == tuple(i % size for i in range(step.session.length))
                for step in steps
            )
            return super().extend_many(steps)

    target = Counting(right, name="target")
    made = SpeculativeDecoder(
        DraftModel(TableModel(second), "greedy", tree=TreeShape.from_levels((2, 2, 2))), target
    )
    result = made.generate([0, 1], SamplingParams(temperature=0, max_tokens=12))
    assert result.token_ids == tuple((2 + i) % size for i in range(12))
    assert [r.num_accepted_tokens for r in result.rounds] == [3, 3, 3]
    assert read == [2 + 14, 1 + 14, 1 + 14]
    assert result.stats.num_accepted_tokens_per_pos == (3, 3, 3)
    assert result.stats.num_reached_tokens_per_pos == (3, 3, 3)
    assert result.stats.num_draft_tokens == 3 * 14
    assert result.stats.acceptance_per_position["conditional"] == (1.0, 1.0, 1.0)
    assert {origin for r in result.rounds for origin in r.origins} == {"draft", "bonus"}


def test_positions_are_levels_in_the_statistics():
    """The target agrees with the first level and never with the second."""
    size = 6
    target = TableModel(
        [[1.0 if j == (i + 1) % size else 0.0 for j in range(size)] for i in range(size)]
    )
    half = [
        [0.5 if j in ((i + 1) % size, (i + 3) % size) else 0.0 for j in range(size)]
        for i in range(size)
    ]

    def draft(prefix):
        return (
            half[prefix[-1]]
            if len(prefix) % 2 == 0
            else [0.0 if j == (prefix[-1] + 1) % size else 0.2 for j in range(size)]
        )

    made = SpeculativeDecoder(
        DraftModel(
            TableModel(draft, vocab_size=size),
            tree=TreeShape.from_levels((2, 2)),
            selection="without_replacement",
        ),
        target,
        speculative_config={"rule": "match"},
    )
    stats = made.generate([0, 1], SamplingParams(max_tokens=13, seed=5)).stats
    assert stats.num_accepted_tokens_per_pos == (6, 0)
    assert stats.num_reached_tokens_per_pos == (6, 6)


def test_a_tree_ends_where_the_context_does():
    target = FAMILIES["gpt2"](torch.float64)
    made = decoder(target, FAMILIES["gpt2"](torch.float64, seed=0), tree="3,2,1")
    params = SamplingParams(max_tokens=100, seed=0)
    prompt = PROMPT[:4]
    result = made.generate(prompt, params)
    assert len(result.token_ids) == 32 - len(prompt)
    assert result.outputs[0].finish_reason == "length"


@pytest.mark.parametrize("tree, message", [("2,2", "chains of 2 are drafted instead")])
def test_without_trees_a_chain_is_drafted_and_the_statistics_say_so(tree, message):
    target, draft = pair("llama")
    model = HFModel(target)
    model.supports_trees = False
    made = SpeculativeDecoder(draft, model, speculative_config={"model": "draft", "tree": tree})
    result = made.generate(PROMPT, SamplingParams(max_tokens=12, seed=2))
    assert any(message in note for note in result.stats.notes)
    assert all(r.draft_parents == tuple(range(-1, len(r.draft_parents) - 1)) for r in result.rounds)


def test_the_trie_of_an_ngram_drafter_merges_matches():
    """After "5 9" came 12 and 3; after 9 alone also 4. The latest match of the longest suffix is
    the first branch."""
    context = [9, 4, 1, 5, 9, 12, 2, 5, 9, 3, 2, 5, 9]
    certain = TableModel([[1 / 16] * 16 for _ in range(16)])
    drafter = NGram(2, 1, tree=TreeShape.from_levels((3, 1, 1)))
    made = SpeculativeDecoder(drafter, certain)
    record = made.generate(context, SamplingParams(max_tokens=5, seed=0)).rounds[0]
    assert record.draft_parents == (-1, 0, 1, -1, 3, 4, -1, 6, 7)
    assert record.draft_tokens == (3, 2, 5, 12, 2, 5, 4, 1, 5)


def test_rules_selections_and_trees_must_fit():
    target, draft = pair("llama")
    assert decoder(target, draft, tree="2,1").rule is RULES["traversal"]
    assert decoder(target, draft, tree="2,1", rule="k_seq").drafter.selection == "iid"
    assert decoder(target, draft, tree="2,1", rule="greedy_k").drafter.selection == "top_k_plus_one"
    assert decoder(target, draft, tree="2,1", draft_sample_method="greedy").rule is RULES["match"]
    assert decoder(target, tree="2,1").rule is RULES["match"]
    with pytest.raises(UsageError, match="verifies chains only"):
        decoder(target, draft, tree="2,1", rule="block", tree_selection="iid")
    with pytest.raises(UsageError, match="cannot verify top_k_plus_one"):
        decoder(target, draft, tree="2,1", rule="rrs", tree_selection="top_k_plus_one")
    with pytest.raises(UsageError, match="the tree has 2 levels"):
        decoder(target, draft, tree="2,1", num_speculative_tokens=5)
    with pytest.raises(UsageError, match="the tree has 2 levels"):
        decoder(target, draft, tree="2,1").generate(
            PROMPT, SamplingParams(max_tokens=4, num_speculative_tokens=3)
        )
    with pytest.raises(UsageError, match="tree_selection is read for sampled trees"):
        decoder(target, draft, tree_selection="iid")
    with pytest.raises(UsageError, match="'tree' but no method"):
        SpeculativeDecoder(None, target, speculative_config={"tree": "2,1"})


def test_a_shorter_draft_length_cuts_the_tree():
    target, draft = pair("llama")
    made = decoder(target, draft, tree="2,2,1", rule="match")
    params = SamplingParams(max_tokens=9, seed=1, num_speculative_tokens=1)
    assert all(len(r.draft_tokens) <= 2 for r in made.generate(PROMPT, params).rounds)
