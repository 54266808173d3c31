"""What drafters that remember take in: where a lookup goes on, which of two equal matches wins,
what a store may hold."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.others import Spelled
from draftproof.core.chance import KeyedChance
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Observation, Round
from draftproof.core.tree import TreeShape
from draftproof.drafters.auto import Auto
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.lookahead import Lookahead
from draftproof.drafters.medusa import Medusa
from draftproof.drafters.ngram_cache import NGramCache
from draftproof.drafters.other_tokenizer import OtherTokenizer
from draftproof.drafters.protocol import Request
from draftproof.drafters.recycling import Recycling
from draftproof.drafters.suffix import Suffix
from draftproof.models.hf import HFModel
from draftproof.models.transcript import Vocabularies
from random_heads import random_head, random_state
from tiny import llama


def opened(drafter, prompt):
    laws = LawPipeline(SamplingParams(), num_prompt_tokens=len(prompt), vocab_size=16)
    target = TableModel(np.full((16, 16), 1 / 16), name="target")
    return drafter.open(Request(tuple(prompt), SamplingParams(), laws, target))


def drafted(session, context, depth):
    draft = DraftBuilder(KeyedChance((0, 0), len(context)), depth=depth, vocab_size=16, max_nodes=8)
    session.propose(context, draft)
    return draft.build().tokens


def test_an_n_gram_lookup_goes_on_from_four_tokens():
    """After 0 1 2 3 came 4 once; after 1 2 3 alone mostly 6."""
    context = [0, 1, 2, 3, 4, 5, 1, 2, 3, 6, 5, 1, 2, 3, 6, 9, 0, 1, 2]
    assert drafted(opened(NGramCache(), context), context, 2) == (3, 4)


def test_of_equal_sums_the_longer_match_wins():
    """After 0 1 came 2 and lately 3, each once; after 1 as often, and lately 2."""
    context = [0, 1, 2, 0, 1, 3, 4, 1, 3, 4, 1, 2, 0, 1]
    assert drafted(opened(Suffix(), context), context, 1) == (3,)


def test_prompts_are_not_in_the_store_of_outputs():
    drafter = Suffix(max_cached_requests=4)
    first = opened(drafter, [1, 2, 3, 4])
    record = Round(4, (), (), (6, 7, 8), ("plain",) * 3, 0, 0)
    first.observe(Observation(start=0, tokens=(1, 2, 3, 4), round=record))
    first.close()
    assert drafted(opened(drafter, [5, 6, 7]), [5, 6, 7], 1) == (8,)
    assert drafted(opened(drafter, [5, 2, 3]), [5, 2, 3], 1) == ()


def test_an_edited_context_that_is_longer_is_read_anew():
    session = opened(Suffix(), [1, 2, 3])
    drafted(session, [1, 2, 3], 1)
    assert drafted(session, [4, 5, 6, 7, 4, 5], 1) == (6,)


def test_rejected_rows_teach_recycling_too():
    session = opened(Recycling(tree=TreeShape.from_levels((1, 1))), [1, 2])
    top = np.array([[3, 4], [5, 6], [7, 8]])
    session.observe(
        Observation(
            start=0, tokens=(2,), row_tokens=(2, 9, 10), row_parents=(-1, 0, 0), top_ids=top
        )
    )
    assert drafted(session, [1, 9], 1) == (5,)
    assert drafted(session, [1, 10], 1) == (7,)


@pytest.mark.parametrize("last, drafts", [(15, True), (16, False)])
def test_the_first_token_a_draft_model_has_no_input_for_is_not_read(last, drafts):
    target, draft = llama(vocab_size=20), llama(vocab_size=16, seed=1)
    made = SpeculativeDecoder(draft, target, speculative_config={"num_speculative_tokens": 2})
    result = made.generate(
        [1, last], SamplingParams(temperature=0, max_tokens=3, allowed_token_ids=[2, 3])
    )
    assert bool(result.rounds[0].draft_tokens) == drafts


@pytest.mark.parametrize("asked", ["iid", "without_replacement", "top_k_plus_one"])
@pytest.mark.parametrize(
    "method",
    [
        {"method": "early_exit", "early_exit_layers": 1},
        {"method": "layer_skip", "skip_layers": [1]},
    ],
)
def test_a_part_of_the_target_draws_siblings_as_asked(method, asked):
    target = HFModel(llama(), check=False)
    rule = "greedy_k" if asked == "top_k_plus_one" else "rrs"
    config = method | {"tree": "2,1", "tree_selection": asked, "rule": rule}
    assert SpeculativeDecoder(None, target, speculative_config=config).drafter.selection == asked


def test_an_n_gram_seen_twice_takes_one_place():
    session = opened(Lookahead(window=1, depth=1, pool=2), [0])
    for guess in ((1,), (2,), (2,)):
        session._remember(0, guess)
    assert sorted(drafted(session, [5, 0], 1)) == [1, 2]


@pytest.mark.parametrize(
    "shared, text, route",
    [((10, 12), (3, 6), "text"), ((3, 6), (10, 12), "shared"), ((2, 9), (3, 0), "shared")],
)
def test_routes_are_compared_draft_by_draft(shared, text, route):
    """(drafts, accepted tokens) of both; fewer than three drafts of one are too few to tell."""
    spelled = [bytes([97 + i]) for i in range(16)]
    between = Vocabularies(Spelled(*spelled), Spelled(*spelled), target_size=16, draft_size=16)
    model = TableModel(np.full((16, 16), 1 / 16))
    session = OtherTokenizer(model, between).open(
        Request(
            (0,),
            SamplingParams(),
            LawPipeline(SamplingParams(), num_prompt_tokens=1, vocab_size=16),
            model,
        )
    )
    session._accepted = {"shared": shared, "text": text}
    assert session.route == route


def test_every_drafter_of_auto_is_told_of_every_round():
    drafter = Auto(
        {"ngram_cache": NGramCache(), "recycling": Recycling(tree=TreeShape.from_levels((1, 1)))}
    )
    session = opened(drafter, [1, 2])
    session.choose("ngram_cache")
    session.observe(
        Observation(
            start=0, tokens=(2,), row_tokens=(2,), row_parents=(-1,), top_ids=np.array([[3]])
        )
    )
    session.choose("recycling")
    assert drafted(session, [1, 2], 1) == (3,)


def states_of(head, *tokens):
    return {layer: np.zeros((len(tokens), head.config.hidden_size)) for layer in head.hidden_layers}


@pytest.mark.parametrize(
    "context, drafts", [([1, 2, 3], True), ([1, 2, 3, 4], False), ([1, 2], False)]
)
def test_a_state_of_another_place_is_not_drafted_from(context, drafts):
    head = random_head("medusa")
    session = opened(Medusa(head), [1, 2])
    session.observe(Observation(start=0, tokens=(1, 2), hidden=states_of(head, 1, 2)))
    draft = DraftBuilder(KeyedChance((0, 0), len(context)), depth=1, vocab_size=16)
    asked = next(session.propose(context, draft), None)
    assert (asked is not None) == drafts


def test_no_draft_is_longer_than_there_are_heads():
    head = random_head("medusa")
    most = head.config.num_heads
    target = TableModel(
        [[1.0 if j == (i + 1) % 8 else 0.0 for j in range(8)] for i in range(8)],
        hidden=random_state,
    )
    made = SpeculativeDecoder(
        Medusa(head), target, speculative_config={"num_speculative_tokens": most + 2}
    )
    result = made.generate([0, 1, 2], SamplingParams(max_tokens=12, temperature=0))
    assert max(len(record.draft_tokens) for record in result.rounds) == most
    assert any("no draft is longer" in note for note in result.stats.notes)
