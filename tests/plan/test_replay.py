"""Drafters asked over a recorded text: what they would have drafted there, and its chance, against
real rounds."""

from __future__ import annotations

import numpy as np
import pytest

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.audit.others import Spelled
from draftproof.core.tree import TreeShape
from draftproof.drafters.draft_model import DraftModel
from draftproof.drafters.eagle import Eagle
from draftproof.drafters.medusa import Medusa
from draftproof.drafters.ngram import NGram
from draftproof.drafters.other_tokenizer import OtherTokenizer
from draftproof.drafters.recycling import Recycling
from draftproof.drafters.suffix import Suffix
from draftproof.models.transcript import Vocabularies
from draftproof.plan.acceptance import Judge
from draftproof.plan.forcing import Text, force
from draftproof.plan.replay import replay
from draftproof.plan.rounds import expect, trace_of_coins, trace_of_ratios
from random_heads import random_head, random_state

LAWS = np.random.default_rng(5).dirichlet(np.full(8, 0.4), size=8)
TARGET = TableModel(LAWS, name="target", hidden=random_state)
DRAFT = TableModel(
    0.5 * LAWS + 0.5 * np.random.default_rng(6).dirichlet(np.full(8, 1.0), size=8), name="draft"
)
LETTERS = [bytes([97 + i]) for i in range(8)]
OTHER = TableModel(np.random.default_rng(7).dirichlet(np.full(9, 1.0), size=9), name="other tokens")
BETWEEN = Vocabularies(
    Spelled(*LETTERS), Spelled(*reversed(LETTERS), b"z"), target_size=8, draft_size=9
)
TREE = TreeShape.from_levels((2, 2, 1))
PROMPT = (0, 1, 2, 3, 0, 1)
K = 3

FIXED = {
    "ngram": lambda: NGram(),
    "suffix": lambda: Suffix(),
    "text route": lambda: OtherTokenizer(OTHER, BETWEEN, "text"),
    "eagle, greedy": lambda: Eagle(random_head("eagle"), "greedy"),
    "eagle3, greedy": lambda: Eagle(random_head("eagle3"), "greedy", name="eagle3"),
    "eagle, dynamic tree": lambda: Eagle(random_head("eagle"), num_nodes=6, top_k=3),
    "medusa": lambda: Medusa(random_head("medusa")),
    "medusa, tree": lambda: Medusa(random_head("medusa"), tree=TREE),
}
DRAWN = {
    "draft_model": lambda: DraftModel(DRAFT),
    "eagle": lambda: Eagle(random_head("eagle")),
    "eagle3": lambda: Eagle(random_head("eagle3"), name="eagle3"),
    "shared route": lambda: OtherTokenizer(OTHER, BETWEEN, "shared"),
}


def run(drafter, seed, tokens=30, **config):
    made = SpeculativeDecoder(
        drafter, TARGET, speculative_config={"num_speculative_tokens": K} | config
    )
    params = SamplingParams(max_tokens=tokens, seed=seed, temperature=1.0)
    return params, made, made.generate(list(PROMPT), params)


@pytest.mark.parametrize("name", FIXED)
def test_fixed_guesses_are_those_of_real_rounds(name):
    """Given the text, rounds are certain: every one begins where the last ended and accepts what
    the trace says."""
    drafted = 0
    for seed in range(6):
        drafter = FIXED[name]()
        params, made, result = run(drafter, seed)
        most = made.longest_draft if drafter.trees else None
        trace = replay(drafter, TARGET, Text(PROMPT, result.token_ids), params, K, most)
        place = 0
        for record in result.rounds:
            nodes = trace.drafted if trace.nodes is None else trace.nodes
            assert nodes[place] == len(record.draft_tokens)
            assert trace.accept[place].sum() == record.num_accepted_tokens
            drafted += len(record.draft_tokens)
            place += len(record.tokens)
        assert place == len(result.token_ids)
    assert drafted > 0


def test_recycling_is_told_the_rows_of_the_text():
    """Its table is fed by rejected rows too in a real run, so its drafts there know at least as
    much: here, of a deterministic target in a cycle, the text's own rows say all."""
    cycle = TableModel([[1.0 if j == (i + 1) % 8 else 0.0 for j in range(8)] for i in range(8)])
    text = Text((0, 1), tuple((2 + i) % 8 for i in range(24)))
    trace = replay(Recycling(depth=K, trees=False), cycle, text, SamplingParams(temperature=0), K)
    assert trace.accept[:8, 0].sum() == 0 and trace.accept[9:20].min() == 1


@pytest.mark.parametrize("rule", ["token", "match", "gumbel", "block"])
def test_a_drawn_chain_has_the_chances_that_both_laws_give(rule):
    """A draft model replayed round by round, against the same model teacher-forced over the
    text."""
    params = SamplingParams(temperature=0.8, top_p=0.9)
    text = Text(
        PROMPT,
        SpeculativeDecoder(None, TARGET)
        .generate(
            list(PROMPT),
            params,
        )
        .token_ids[:40],
    )
    judge = Judge(rule)
    (forced,) = force(TARGET, DRAFT, [text], params, [judge])
    made = trace_of_ratios if judge.joint else trace_of_coins
    expected = made(np.asarray(forced.chances)[:, 0], forced.overlaps, K)
    trace = replay(DraftModel(DRAFT), TARGET, text, params, K, judge=judge)
    inside = np.minimum(K, np.arange(len(text.answer) - 1, -1, -1))
    for place, room in enumerate(inside[:-1]):
        # what follows a token that cannot be accepted is never asked for
        stop = next((i + 1 for i in range(room) if trace.accept[place, i] == 0), room)
        np.testing.assert_allclose(
            trace.accept[place, :stop], expected.accept[place, :stop], rtol=1e-6
        )
    np.testing.assert_allclose(trace.overlaps[:-1], np.asarray(forced.overlaps)[:-1], rtol=1e-6)
    assert expect(trace, K).tokens_per_round == pytest.approx(expect(expected, K).tokens_per_round)


@pytest.mark.parametrize(
    ("name", "rule"), [("eagle", "token"), ("eagle3", "block"), ("shared route", "token")]
)
def test_rounds_are_as_many_as_foretold_on_their_own_text(name, rule):
    """60 runs; what each took beyond the expectation on its own text has mean 0. |z| above 4.4 has
    a chance of 1e-5 a case when that is so; a bias of 0.7 deviations would be missed with a chance
    of at most 0.2."""
    beyond = []
    for seed in range(60):
        drafter = DRAWN[name]()
        params, _, result = run(drafter, seed, tokens=12, rule=rule)
        trace = replay(
            drafter, TARGET, Text(PROMPT, result.token_ids), params, K, judge=Judge(rule)
        )
        beyond.append(len(result.rounds) - expect(trace, K).num_rounds)
    assert np.std(beyond) > 0.1
    assert abs(np.mean(beyond)) < 4.4 * np.std(beyond) / len(beyond) ** 0.5


def test_on_a_given_answer_overlaps_stand_for_chances():
    """What the target gives a token that it did not write says nothing about what it would have
    written."""
    params = SamplingParams(temperature=1.0)
    own, given = (Text(PROMPT, (2, 5, 1, 7, 3, 0), own=own) for own in (True, False))
    judge = Judge("token")
    traces = [
        replay(DraftModel(DRAFT), TARGET, text, params, 2, judge=judge) for text in (own, given)
    ]
    whole = (*PROMPT, *given.answer)
    for s in range(4):
        laws = [
            (LAWS[whole[len(PROMPT) + s + d - 1]], DRAFT.law(whole[: len(PROMPT) + s + d]))
            for d in range(2)
        ]
        assert traces[1].accept[s] == pytest.approx(
            [np.minimum(p, q).sum() for p, q in laws], abs=1e-6
        )
        tokens = given.answer[s : s + 2]
        ratios = [min(1.0, q[x] / p[x]) for (p, q), x in zip(laws, tokens, strict=True)]
        assert traces[0].accept[s] == pytest.approx(ratios, abs=1e-6)


def test_a_draft_ends_where_its_law_gives_the_text_nothing():
    """The draft model never writes token 1; a place before it has no chance, and nothing after it
    is drafted on."""
    rows = np.full((8, 8), 1 / 7)
    rows[:, 1] = 0.0
    seen = []

    class Watched(Judge):
        def laws(self, target_laws, draft_laws, tokens):
            seen.append(int(tokens[0]))
            return super().laws(target_laws, draft_laws, tokens)

    text = Text(PROMPT, (2, 1, 3, 4, 5))
    trace = replay(
        DraftModel(TableModel(rows)),
        TARGET,
        text,
        SamplingParams(temperature=1.0),
        3,
        judge=Watched("token"),
    )
    assert 1 not in seen and set(seen) == {2, 3, 4, 5} - {5}
    assert (trace.accept[0] > 0).tolist() == [True, False, False] and not trace.accept[1].any()
