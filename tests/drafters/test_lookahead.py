"""Lookahead: what the window reads, which n-grams it leaves, that guesses come from rounds before,
and that the law is kept."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch

from draftproof import SamplingParams, SpeculativeDecoder, TableModel
from draftproof.core.chance import KeyedChance
from draftproof.core.pipeline import LawPipeline
from draftproof.core.records import Observation, Round
from draftproof.drafters.builder import DraftBuilder
from draftproof.drafters.lookahead import Lookahead
from draftproof.drafters.protocol import Request
from draftproof.errors import UsageError
from draftproof.models.hf import HFModel
from draftproof.models.protocol import Step, extend
from sampling import assert_same_law, exact_law
from tiny import FAMILIES

CYCLE = TableModel([[0.9 if j == (i + 1) % 8 else 0.1 / 7 for j in range(8)] for i in range(8)])


def decoder(target, **keys):
    return SpeculativeDecoder(None, target, speculative_config={"method": "lookahead"} | keys)


class Model:
    """Lookahead by brute force: the window as a dictionary of positions, rows from plain forwards
    over whole prefixes."""

    def __init__(self, best, window, depth, pool):
        self.best, self.window, self.depth, self.limit = best, window, depth, pool
        self.levels, self.pool = [{}], defaultdict(list)

    def guesses(self, context):
        return list(reversed(self.pool[context[-1]]))

    def round(self, context, emitted):
        """Read the window after `context`, whose last token is pending; then `emitted` tokens are
        committed."""
        at = len(context) - 1
        for number, level in enumerate(self.levels):
            for column in range(self.window):
                place = at + 1 + number + column
                level.setdefault(
                    at + column + number, context[(place * 2654435761 + number) % len(context)]
                )
        self.levels[0][at] = context[-1]
        newest = {}
        for column in range(self.window):
            path = [self.levels[0][at + i] for i in range(column + 1)]
            path += [
                self.levels[number][at + column + number] for number in range(1, len(self.levels))
            ]
            newest[at + column + len(self.levels)] = self.best(tuple(context[:-1]) + tuple(path))
        self.levels.append(newest)
        if len(self.levels) > self.depth:
            for column in range(self.window):
                first, *gram = (self.levels[n][at + column + n] for n in range(self.depth + 1))
                kept = [g for g in self.pool[first] if g != tuple(gram)]
                self.pool[first] = [*kept, tuple(gram)][-self.limit :]
            del self.levels[0]
        pending = at + emitted
        self.levels = [
            {
                place: token
                for place, token in level.items()
                if pending <= place - number < pending + self.window
            }
            for number, level in enumerate(self.levels)
        ]


@pytest.mark.parametrize(
    "window, depth, pool", [(1, 1, 1), (1, 3, 2), (3, 1, 2), (4, 2, 2), (5, 3, 3)]
)
def test_it_drafts_what_the_paper_says(window, depth, pool):
    module = FAMILIES["llama"]()
    target = HFModel(module)

    def best(prefix):
        return int(extend(Step(target.open(), prefix, rows=(len(prefix) - 1,))).logits[0].argmax())

    made = SpeculativeDecoder(
        Lookahead(window, depth, pool), target, speculative_config={"num_speculative_tokens": depth}
    )
    prompt = [3, 1, 4, 1, 5]
    result = made.generate(prompt, SamplingParams(max_tokens=30, temperature=0))
    model, context = Model(best, window, depth, pool), list(prompt)
    drafted = 0
    for record in result.rounds[:-1]:
        expected = trie(model.guesses(context), min(depth, len(prompt) + 30 - len(context) - 1))
        assert paths(record.draft_tokens, record.draft_parents) == expected
        drafted += len(expected)
        model.round(context, len(record.tokens))
        context += record.tokens
    assert drafted > 0


def trie(guesses, depth):
    return {gram[: i + 1] for gram in guesses for i in range(min(depth, len(gram)))}


def paths(tokens, parents):
    found = []
    for token, parent in zip(tokens, parents, strict=True):
        found.append((() if parent < 0 else found[parent]) + (token,))
    assert len(set(found)) == len(found), "a node is proposed twice"
    return set(found)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_plain_decodings(family):
    target = HFModel(FAMILIES[family]())
    made = decoder(target, lookahead_window=4, num_speculative_tokens=3, lookahead_pool=3)
    params = SamplingParams(max_tokens=20, temperature=0)
    for prompt in ([3, 1, 4, 1, 5, 9], [2, 6], [7]):
        result = made.generate(prompt, params)
        assert result.token_ids == made.plain.generate(prompt, params).token_ids
        assert any(record.num_read_beside for record in result.rounds)


def test_sampled_text_of_a_seed_is_plain_decodings():
    made = decoder(HFModel(FAMILIES["qwen2"]()))
    for seed in range(5):
        params = SamplingParams(max_tokens=20, seed=seed)
        assert (
            made.generate([3, 1, 4], params).token_ids
            == made.plain.generate([3, 1, 4], params).token_ids
        )


def history_model():
    def law(prefix):
        rng = np.random.default_rng([11, len(prefix), *prefix])
        mass = np.exp(rng.normal(size=3))
        return mass / mass.sum()

    return TableModel(law, vocab_size=3)


@pytest.mark.parametrize("rule", ["match", "rrs", "traversal"])
def test_the_law_is_the_targets(rule):
    target = history_model()
    made = decoder(
        target, lookahead_window=2, num_speculative_tokens=2, lookahead_pool=2, rule=rule
    )
    found = exact_law(made, [0, 1, 0], 5)
    assert_same_law(found, exact_law(made.plain, [0, 1, 0], 5), tolerance=1e-12)


class Watched(TableModel):
    """A target that keeps the steps it was given."""

    def __init__(self, target):
        super().__init__(target.law, vocab_size=target.vocab_size)
        self.steps = []

    def extend_many(self, steps):
        self.steps += steps
        return super().extend_many(steps)


def test_no_verified_token_hangs_under_the_window():
    watched = Watched(CYCLE)
    made = decoder(watched, num_speculative_tokens=2, lookahead_window=3)
    result = made.generate([0, 1, 2], SamplingParams(max_tokens=20, temperature=0))
    assert max(len(record.draft_tokens) for record in result.rounds) > 0
    for step, record in zip(watched.steps, result.rounds, strict=True):
        last = len(step.tokens) - record.num_read_beside
        assert all(parent < last for parent in (step.parents or ())[:last])
        assert step.tokens[last - len(record.draft_tokens) : last] == record.draft_tokens
        assert list(step.rows or ())[: len(record.draft_tokens) + 1] == [
            *range(last - len(record.draft_tokens) - 1, last)
        ]


def test_near_the_context_limit_the_window_is_left_out_and_the_text_goes_on():
    table = TableModel(
        [[0.9 if j == (i + 1) % 8 else 0.1 / 7 for j in range(8)] for i in range(8)], max_length=24
    )
    made = decoder(table, num_speculative_tokens=2, lookahead_window=4)
    result = made.generate([0], SamplingParams(max_tokens=40, temperature=0))
    assert (
        result.token_ids
        == made.plain.generate([0], SamplingParams(max_tokens=40, temperature=0)).token_ids
    )
    assert len(result.token_ids) == 23
    assert (
        [r.num_read_beside for r in result.rounds][-1]
        == 0
        < max(r.num_read_beside for r in result.rounds)
    )


def test_forbidden_tokens_end_a_guess():
    made = decoder(CYCLE, num_speculative_tokens=3)
    params = SamplingParams(max_tokens=30, temperature=0, suppress_tokens=[3])
    result = made.generate([0, 1, 2], params)
    assert result.token_ids == made.plain.generate([0, 1, 2], params).token_ids
    assert not any(3 in record.draft_tokens for record in result.rounds)


def test_a_target_without_trees_is_refused():
    chains = TableModel([[0.5, 0.5], [0.5, 0.5]], name="chains")
    chains.supports_trees = False
    with pytest.raises(UsageError, match="chains reads chains only"):
        decoder(chains)
    with pytest.raises(UsageError, match="lookahead_window is 0"):
        decoder(CYCLE, lookahead_window=0)
    with pytest.raises(UsageError, match="from 1"):
        Lookahead(pool=0)


def test_equal_keys_say_equal_proposals():
    """The key holds window and pool; what the builder was given before is not in it."""
    laws = LawPipeline(SamplingParams(), num_prompt_tokens=2, vocab_size=8)
    session = Lookahead(2, 2, 2).open(Request((0, 1), SamplingParams(), laws, CYCLE))
    before = session.state_key()
    draft = DraftBuilder(KeyedChance((0, 0), 2), depth=2, vocab_size=8)
    session.propose([0, 1], draft)
    assert draft.beside().tokens != ()
    assert session.state_key() != before
    record = Round(2, (), (), (5,), ("plain",), 0, 0)
    session.observe(
        Observation(
            start=0,
            tokens=(0, 1),
            top_ids=np.array([[5]]),
            beside_top_ids=np.array([[6]]),
            round=record,
        )
    )
    assert hash(session.state_key()) != hash(before)


def test_what_is_read_beside_must_hang_under_something_read():
    draft = DraftBuilder(KeyedChance((0, 0), 2), depth=2, vocab_size=8)
    with pytest.raises(UsageError, match="not read beside"):
        draft.read_beside(1, 0)
    with pytest.raises(UsageError, match="ids go from 0 to 7"):
        draft.read_beside(8)
    first = draft.read_beside(1, wanted=False)
    draft.read_beside(2, first)
    assert (draft.beside().tokens, draft.beside().parents, draft.beside().wanted) == (
        (1, 2),
        (-1, 0),
        (1,),
    )


def test_a_wider_pass_reads_the_same(monkeypatch):
    """The window in one pass with a long prompt and with trees over several chunks."""
    torch.manual_seed(0)
    target = HFModel(FAMILIES["llama"]())
    made = decoder(target, lookahead_window=12, num_speculative_tokens=5, lookahead_pool=6)
    prompt = [(7 * i * i + 3) % 64 for i in range(40)]
    params = SamplingParams(max_tokens=16, temperature=0)
    assert made.generate(prompt, params).token_ids == made.plain.generate(prompt, params).token_ids
